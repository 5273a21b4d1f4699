package cli

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/webhook"
)

// receiver is the integrator's program that receives events.
type receiver struct {
	Secret string   `env:"CARDMINT_WEBHOOK_SECRET" placeholder:"SECRET" help:"Secret to sign requests with: whsec_ and base64. Better set in the environment. Defaults to one that is derived from the token, so that it stays the same; without a token, to a new one, which is printed."`
	Header []string `sep:"none" placeholder:"NAME:VALUE" help:"Header to send with each request, for example 'X-Tenant: shop'. May be repeated."`

	poster *webhook.HTTPPoster
	secret card.Secret
}

const receiverTimeout = 15 * time.Second

// reserved are the headers that every webhook request sets.
var reserved = []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Content-Type", "Content-Length",
	"Transfer-Encoding", "Connection", "Host"}

var headerName = regexp.MustCompile("^[A-Za-z0-9_-]+$")

// open prepares requests to an address. It prints the signing secret to out
// unless --secret was given.
func (r *receiver) open(out io.Writer, address, token string) error {
	r.poster = webhook.NewHTTPPoster(outbound.Guard{Insecure: true, Timeout: receiverTimeout})
	r.poster.Unlimited = true
	if err := r.poster.CheckURL(address); err != nil {
		return app.WithHint(fmt.Errorf("the receiver's address %w", err), "give one such as localhost:3000/hook")
	}
	r.poster.Header = http.Header{}
	for _, line := range r.Header {
		name, value, found := strings.Cut(line, ":")
		name, value = http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value)
		switch {
		case !found || !headerName.MatchString(name) || value != oneLine(value):
			return app.WithHint(errors.New("--header can't be used"),
				"it takes a name, a colon and a value, for example --header 'X-Tenant: shop'")
		case slices.Contains(reserved, name):
			return app.WithHint(fmt.Errorf("--header: %s is part of every request already", name),
				"leave it out, or choose another name")
		}
		r.poster.Header.Add(name, value)
	}
	made, err := r.chooseSecret(token)
	if err == nil && made {
		fmt.Fprintf(out, "requests are signed with %s\n", r.secret.Reveal())
	}
	return err
}

// chooseSecret sets the signing secret, and reports whether it was derived or
// generated.
func (r *receiver) chooseSecret(token string) (made bool, err error) {
	if r.secret = card.Secret(r.Secret); r.secret == "" {
		made = true
		raw := make([]byte, sha256.Size)
		_, _ = rand.Read(raw) // never fails
		if token != "" {
			derived := hmac.New(sha256.New, []byte(token))
			derived.Write([]byte("cardmint listen"))
			raw = derived.Sum(nil)
		}
		r.secret = card.Secret("whsec_" + base64.StdEncoding.EncodeToString(raw))
	}
	if _, err := webhook.Sign("", time.Now(), nil, []card.Secret{r.secret}); err != nil {
		return made, app.WithHint(errors.New("--secret can't be used"),
			"it is whsec_ and then base64, as createWebhook answers it; leave it out to have one made")
	}
	return made, nil
}

// withScheme adds a missing scheme to an address: http for this machine, https
// otherwise.
func withScheme(address string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	u, err := url.Parse("http://" + address)
	if err != nil {
		return address
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || host == "localhost" ||
		strings.HasSuffix(host, ".localhost") {
		return "http://" + address
	}
	return "https://" + address
}

// eventJSON is an event as in the feed.
type eventJSON struct {
	ID string `json:"id"`
	eventBody
}

// sentEvent is an event and the result of forwarding it.
type sentEvent struct {
	eventJSON
	Forwarded *forwarded `json:"forwarded,omitempty"`
}

// eventBody documents the fields of card.Event.Payload.
type eventBody struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"`
	Seq       int64  `json:"seq"`
	CardUUID  string `json:"card_uuid,omitempty"`
	Status    string `json:"status,omitempty"`
	State     string `json:"payment_state,omitempty"`
	WebhookID string `json:"webhook_id,omitempty"`
	Since     string `json:"since,omitempty"`
}

// forwarded is the receiver's answer. Either status or error is null.
type forwarded struct {
	To     string   `json:"to"`
	OK     bool     `json:"ok"`
	Status *int     `json:"status"`
	Error  optional `json:"error"`
	Millis int64    `json:"took_ms"`
}

// send sends an event.
func (r *receiver) send(ctx context.Context, to string, e card.Event) webhook.Attempt {
	return r.poster.Post(ctx, to, []card.Secret{r.secret}, e)
}

func newEventJSON(e card.Event) (eventJSON, error) {
	j := eventJSON{ID: e.ID.String()}
	err := json.Unmarshal(e.Payload(), &j.eventBody)
	return j, err
}

// printAttempt prints the result of sending an event.
func printAttempt(out io.Writer, a webhook.Attempt) {
	what := a.Error
	if a.Status != 0 {
		what = fmt.Sprintf("%d %s", a.Status, firstLine(a.Answer))
	}
	fmt.Fprintf(out, "  -> %s (%s)\n", strings.TrimSpace(what), a.Took.Round(time.Millisecond))
}

// printEvent prints an event as JSON on one line. a is nil if the event was not
// forwarded.
func printEvent(g *globals, e card.Event, to string, a *webhook.Attempt) error {
	body, err := newEventJSON(e)
	if err != nil {
		return err
	}
	sent := sentEvent{eventJSON: body}
	if a != nil {
		sent.Forwarded = &forwarded{To: to, OK: a.OK(), Error: optional(a.Error), Millis: a.Took.Milliseconds()}
		if a.Status != 0 {
			sent.Forwarded.Status = &a.Status
		}
	}
	return writeJSON(g, sent)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	const longest = 80
	if runes := []rune(line); len(runes) > longest {
		return string(runes[:longest]) + "..."
	}
	return line
}
