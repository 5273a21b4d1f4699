package webhook

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/trace"
)

// HTTPPoster is a Poster that uses the guarded HTTP client.
type HTTPPoster struct {
	// Header is sent with every request, beside what proves its origin, which
	// it can't replace. Defaults to none. It must not be changed while requests
	// are sent.
	Header http.Header
	// Unlimited switches the limits of destinations off, for a receiver of the
	// process's own operator. Defaults to false.
	Unlimited bool

	client       *outbound.Client
	destinations *destinations
	now          func() time.Time
}

// NewHTTPPoster returns a poster for the URLs that guard allows. The caller
// must close it.
func NewHTTPPoster(guard outbound.Guard) *HTTPPoster {
	return &HTTPPoster{client: outbound.NewClient(guard), destinations: newDestinations(), now: time.Now}
}

// Close closes idle connections.
func (p *HTTPPoster) Close() { p.client.Close() }

// CheckURL implements Poster.
func (p *HTTPPoster) CheckURL(url string) error { return p.client.CheckURL(url) }

// Post implements Poster.
func (p *HTTPPoster) Post(ctx context.Context, url string, secrets []card.Secret, e card.Event) Attempt {
	return p.post(ctx, p.receiver(e.AccountID, url, secrets), e)
}

// receiver is where events are sent, and how they are signed.
type receiver struct {
	target   outbound.Target
	endpoint endpointKey
	signer   signer
	err      error // why nothing can be signed
}

func (p *HTTPPoster) receiver(account uuid.UUID, url string, secrets []card.Secret) receiver {
	by, err := newSigner(secrets)
	to := p.client.Target(url)
	key := endpointKey{account, to.Host()}
	if !p.Unlimited {
		to.Admit = func(address netip.Addr) time.Duration { return p.destinations.admit(key, address) }
	}
	return receiver{to, key, by, err}
}

func (p *HTTPPoster) post(ctx context.Context, to receiver, e card.Event) Attempt {
	at, body := p.now(), e.Payload()
	header, err := to.signer.sign(e.ID.String(), at, body)
	if to.err != nil || err != nil {
		return Attempt{At: at, Error: "the request could not be signed"}
	}
	header["Content-Type"] = []string{"application/json"}
	for name, values := range p.Header {
		if _, ours := header[name]; !ours {
			header[name] = values
		}
	}
	trace.Inject(ctx, header)
	answer := p.client.Post(ctx, to.target, header, body)
	if answer.Postponed > 0 {
		return Attempt{At: at, Error: answer.Reason, Postponed: answer.Postponed}
	}
	attempt := Attempt{At: at, Took: answer.Took, Status: answer.Status, Answer: answer.Body, Error: answer.Reason,
		RetryAfter: answer.RetryAfter}
	p.destinations.report(to.endpoint, answer.Address, attempt)
	return attempt
}
