package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/webhook"
)

// receiver is a program on the integrator's machine that events are sent to.
type receiver struct {
	Secret string `env:"CARDMINT_WEBHOOK_SECRET" placeholder:"SECRET" help:"Secret to sign requests with: whsec_ and base64. Better set in the environment. Defaults to a new one, which is printed."`

	poster *webhook.HTTPPoster
	secret card.Secret
}

const receiverTimeout = 15 * time.Second

// open readies the receiver, and says what requests are signed with if it was not given.
func (r *receiver) open(out io.Writer, url string) error {
	r.poster = webhook.NewHTTPPoster(outbound.Guard{Insecure: true, Timeout: receiverTimeout})
	if err := r.poster.CheckURL(url); err != nil {
		return hint(fmt.Errorf("the receiver's address %w", err), "give one such as http://localhost:3000/hook")
	}
	r.secret = card.Secret(r.Secret)
	if r.secret == "" {
		raw := make([]byte, 32)
		_, _ = rand.Read(raw) // never fails
		r.secret = card.Secret("whsec_" + base64.StdEncoding.EncodeToString(raw))
		fmt.Fprintf(out, "requests are signed with %s\n", r.secret.Reveal())
	}
	if _, err := webhook.Sign("", time.Now(), nil, []card.Secret{r.secret}); err != nil {
		return hint(errors.New("--secret can't be used"), "it is whsec_ and then base64, as createWebhook answers it; leave it out to have one made")
	}
	return nil
}

// send sends an event, prints the outcome, and reports whether the receiver accepted it.
func (r *receiver) send(ctx context.Context, out io.Writer, url string, e card.Event) bool {
	a := r.poster.Post(ctx, url, []card.Secret{r.secret}, e)
	what := a.Error
	if a.Status != 0 {
		what = fmt.Sprintf("%d %s", a.Status, firstLine(a.Answer))
	}
	fmt.Fprintf(out, "  -> %s (%s)\n", strings.TrimSpace(what), a.Took.Round(time.Millisecond))
	return a.OK()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	const longest = 80
	if runes := []rune(line); len(runes) > longest {
		return string(runes[:longest]) + "..."
	}
	return line
}

type listenCommand struct {
	receiver  `embed:""`
	URL       string        `env:"CARDMINT_URL" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Address of the service (${default})."`
	Token     string        `env:"CARDMINT_TOKEN" required:"" placeholder:"TOKEN" help:"The account's API token. Better set in the environment, where no other user sees it."`
	ForwardTo string        `name:"forward-to" placeholder:"URL" help:"URL to send each event to, signed like a webhook's. Without it events are only printed."`
	After     int64         `default:"-1" placeholder:"SEQ" help:"Begin after the event with this seq; 0 for all. Defaults to new events only."`
	Every     time.Duration `default:"1s" placeholder:"DURATION" help:"How often to ask for new events (${default})."`
}

func (listenCommand) Help() string {
	return `Needs no public address: events are read from the account's feed, and forwarded from here.

Examples:
  CARDMINT_TOKEN=cm_test_... cardmint listen
  CARDMINT_TOKEN=cm_test_... cardmint listen --forward-to http://localhost:3000/hook
  CARDMINT_TOKEN=cm_test_... cardmint listen --url https://cards.example.com --after 0`
}

// Run prints and forwards events until ctx ends.
func (c *listenCommand) Run(ctx context.Context, g *globals) error {
	api, err := client.New(c.URL, c.Token)
	if err != nil {
		return hint(err, "--url takes an address such as https://cards.example.com, and CARDMINT_TOKEN a token of the account")
	}
	if c.Every <= 0 {
		return hint(errors.New("--every: must be more than 0"), "for example --every 1s")
	}
	if c.ForwardTo != "" {
		if err := c.open(g.stdout, c.ForwardTo); err != nil {
			return err
		}
		defer c.poster.Close()
	}
	after := c.After
	if after < 0 {
		fmt.Fprintln(g.stderr, "going past the events there are ...")
		if after, err = c.follow(ctx, api, 0, func(*client.Event) {}); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return explainListen(err)
		}
	}
	fmt.Fprintf(g.stderr, "listening after event %d; stop with Ctrl-C\n", after)
	for {
		after, err = c.follow(ctx, api, after, func(e *client.Event) {
			fmt.Fprintln(g.stdout, line(e))
			if c.ForwardTo != "" {
				c.send(ctx, g.stdout, c.ForwardTo, event(e))
			}
		})
		switch refused := (*client.Error)(nil); {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused) && refused.Status < 500:
			return explainListen(err)
		case err != nil:
			fmt.Fprintf(g.stderr, "can't read events, trying again: %v\n", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
	}
}

// follow calls f with every event after the given one, and returns the seq of the last.
func (c *listenCommand) follow(ctx context.Context, api *client.Client, after int64, f func(*client.Event)) (int64, error) {
	for e, err := range api.Events(ctx, after) {
		if err != nil {
			return after, err
		}
		f(e)
		after = e.Seq
	}
	return after, nil
}

func explainListen(err error) error {
	return hint(err, "check --url, and that CARDMINT_TOKEN is a token of the account that is neither expired nor revoked, and has the scope events:read")
}

// line is an event for people.
func line(e *client.Event) string {
	s := fmt.Sprintf("%s %d %s", e.Timestamp.UTC().Format(time.TimeOnly), e.Seq, e.Type)
	if e.CardUUID != uuid.Nil {
		s += fmt.Sprintf(" card=%s status=%s payment=%s", e.CardUUID, e.Status, e.PaymentState)
	}
	if e.WebhookID != uuid.Nil {
		s += fmt.Sprintf(" webhook=%s", e.WebhookID)
	}
	if !e.Since.IsZero() {
		s += " since=" + e.Since.UTC().Format(time.RFC3339)
	}
	return s
}

// event is an event as it is sent.
func event(e *client.Event) card.Event {
	return card.Event{ID: e.ID, Seq: e.Seq, Type: card.EventType(e.Type), CardUUID: e.CardUUID, Status: card.Status(e.Status),
		State: card.PaymentState(e.PaymentState), Reference: card.Secret(e.Reference), WebhookID: e.WebhookID, Since: e.Since, CreatedAt: e.Timestamp}
}

type triggerCommand struct {
	receiver `embed:""`
	Type     string `arg:"" enum:"card.generated,card.refund_due,payment.detected,payment.underpaid,payment.late,payment.expired,payment.canceled,payment.reversed,webhook.disabled,feed.reset" help:"Type of the event: ${enum}."`
	To       string `default:"http://localhost:3000/hook" placeholder:"URL" help:"URL to send it to (${default})."`
}

func (triggerCommand) Help() string {
	return `The event is made up: its card does not exist, and its seq is 0. It fails unless the receiver answers 2xx.

Examples:
  cardmint trigger card.generated
  CARDMINT_WEBHOOK_SECRET=whsec_... cardmint trigger payment.late --to http://localhost:8000/webhooks`
}

// Run sends one event.
func (c *triggerCommand) Run(ctx context.Context, g *globals) error {
	if err := c.open(g.stdout, c.To); err != nil {
		return err
	}
	defer c.poster.Close()
	e := card.ExampleEvent(uuid.Must(uuid.NewV7()), uuid.Nil, uuid.Must(uuid.NewV7()), card.EventType(c.Type))
	fmt.Fprintf(g.stdout, "%s %s\n", e.ID, e.Payload())
	if !c.send(ctx, g.stdout, c.To, e) {
		return hint(errors.New("the receiver did not take the event"), "it has to answer 2xx within %s; start it, or name another with --to", receiverTimeout)
	}
	return nil
}
