package webhook

import (
	"context"
	"net/http"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/trace"
)

// HTTPPoster is a Poster that uses the guarded HTTP client.
type HTTPPoster struct {
	// Header is sent with every request, beside what proves its origin, which it can't replace. Defaults to none. It must not be changed
	// while requests are sent.
	Header http.Header

	client *outbound.Client
	now    func() time.Time
}

// NewHTTPPoster returns a poster for the URLs that guard allows. The caller must close it.
func NewHTTPPoster(guard outbound.Guard) *HTTPPoster {
	return &HTTPPoster{client: outbound.NewClient(guard), now: time.Now}
}

// Close closes idle connections.
func (p *HTTPPoster) Close() { p.client.Close() }

// CheckURL implements Poster.
func (p *HTTPPoster) CheckURL(url string) error { return p.client.CheckURL(url) }

// Post implements Poster.
func (p *HTTPPoster) Post(ctx context.Context, url string, secrets []card.Secret, e card.Event) Attempt {
	return p.post(ctx, p.receiver(url, secrets), e)
}

// receiver is where events are sent, and how they are signed.
type receiver struct {
	target outbound.Target
	signer signer
	err    error // why nothing can be signed
}

func (p *HTTPPoster) receiver(url string, secrets []card.Secret) receiver {
	by, err := newSigner(secrets)
	return receiver{p.client.Target(url), by, err}
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
	return Attempt{At: at, Took: answer.Took, Status: answer.Status, Answer: answer.Body, Error: answer.Reason, RetryAfter: answer.RetryAfter}
}
