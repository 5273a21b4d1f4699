package webhook

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/trace"
)

// HTTPPoster is a Poster that uses the guarded HTTP client. It is safe for
// concurrent use.
type HTTPPoster struct {
	// Header is sent with every request. It can't replace the headers that
	// Sign returns. Defaults to none. It must not change while requests are
	// being sent.
	Header http.Header
	// Unlimited disables the limits per destination, for receivers of the
	// operator. Defaults to false.
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
	at, body := p.now(), e.Payload()
	header, err := Sign(e.ID.String(), at, body, secrets)
	if err != nil {
		return Attempt{At: at, Error: "the request could not be signed"}
	}
	header["Content-Type"] = []string{"application/json"}
	for name, values := range p.Header {
		if _, reserved := header[name]; !reserved {
			header[name] = values
		}
	}
	trace.Inject(ctx, header)
	key := endpointOf(e.AccountID, url)
	request := outbound.Request{URL: url, Header: header, Body: body}
	if !p.Unlimited {
		last, wait := p.destinations.admitLast(key)
		if wait > 0 {
			return Attempt{At: at, Postponed: wait}
		}
		request.Admit = func(address netip.Addr) time.Duration {
			if address == last {
				return 0 // already counted
			}
			return p.destinations.admit(key, address)
		}
	}
	result := p.client.Post(ctx, request)
	if result.Postponed > 0 {
		return Attempt{At: at, Postponed: result.Postponed}
	}
	attempt := Attempt{At: at, Took: result.Took, Status: result.Status, Answer: result.Body, Error: result.Reason,
		RetryAfter: result.RetryAfter}
	p.destinations.report(key, result.Address, attempt)
	return attempt
}
