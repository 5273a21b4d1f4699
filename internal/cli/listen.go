package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

type listenCommand struct {
	apiFlags    `embed:""`
	receiver    `embed:""`
	output      `embed:""`
	ForwardTo   string        `name:"forward-to" placeholder:"URL" help:"URL to send each event to, signed like a webhook's. Without a scheme it is http to this machine and https to others. Without it events are only printed."`
	Events      []string      `enum:"${event_types}" placeholder:"TYPE,..." help:"Only events of these types: ${enum}."`
	After       int64         `default:"-1" placeholder:"SEQ" help:"Begin after the event with this seq; 0 for all. Defaults to new events only."`
	Every       time.Duration `default:"1s" placeholder:"DURATION" help:"Pause before the next attempt if events can't be read (${default})."`
	PrintSecret bool          `name:"print-secret" help:"Print only the secret that requests are signed with, and end."`
}

func (listenCommand) Help() string {
	return `Needs no public address: events are read from the account's feed, and forwarded from here.

Examples:
  cardmint listen
  cardmint listen --forward-to localhost:3000/hook --events card.generated
  cardmint listen --url https://cards.example.com --after 0 --json
  export WEBHOOK_SECRET=$(cardmint listen --print-secret)` + jsonHelp(sentEvent{})
}

// Run prints and forwards events until ctx ends.
func (c *listenCommand) Run(ctx context.Context, g *globals) error {
	api, err := c.apiFlags.open()
	if err != nil {
		return err
	}
	if c.PrintSecret {
		if _, err := c.chooseSecret(c.Token); err != nil {
			return err
		}
		return c.write(g, secretJSON{c.secret.Reveal()}, func(w io.Writer) { fmt.Fprintln(w, c.secret.Reveal()) })
	}
	if c.Every <= 0 {
		return app.WithHint(errors.New("--every: must be more than 0"), "for example --every 1s")
	}
	if c.ForwardTo = withScheme(c.ForwardTo); c.ForwardTo != "" {
		if err := c.receiver.open(c.notes(g), c.ForwardTo, c.Token); err != nil {
			return err
		}
		defer c.poster.Close()
	}
	after := c.After
	if after < 0 {
		if after, err = c.follow(ctx, api, 0, func(*client.Event) error { return nil }); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return c.explain(err)
		}
	}
	fmt.Fprintf(g.stderr, "listening after event %d; stop with Ctrl-C\n", after)
	return c.listen(ctx, g, api, after)
}

// secretJSON is the output of --print-secret with --json.
type secretJSON struct {
	Secret string `json:"secret"`
}

// longestPoll is how long one request waits for events.
const longestPoll = 25 * time.Second

// listen prints and forwards the events after the given one until ctx ends.
func (c *listenCommand) listen(ctx context.Context, g *globals, api *client.Client, after int64) error {
	for {
		pause := c.Every
		began := time.Now()
		events, err := c.awaitEvents(ctx, api, after, uuid.Nil, longestPoll)
		switch refused := (*client.Error)(nil); {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused) && refused.Status < 500 && refused.RetryAfter == 0:
			return c.explain(err)
		case err != nil:
			fmt.Fprintf(g.stderr, "can't read events, trying again: %v\n", c.explain(err))
		case len(events) > 0 || time.Since(began) > time.Second:
			pause = 0
		}
		for i := range events {
			if ctx.Err() != nil {
				return nil
			}
			if err := c.take(ctx, g, &events[i]); err != nil {
				return err
			}
			after = events[i].Seq
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// take prints and forwards an event of a selected type.
func (c *listenCommand) take(ctx context.Context, g *globals, e *client.Event) error {
	if len(c.Events) > 0 && !slices.Contains(c.Events, string(e.Type)) {
		return nil
	}
	if !c.JSON {
		fmt.Fprintln(g.stdout, line(e))
	}
	var attempt *webhook.Attempt
	if c.ForwardTo != "" {
		a := c.send(ctx, c.ForwardTo, event(e))
		attempt = &a
	}
	switch {
	case c.JSON:
		return printEvent(g, event(e), c.ForwardTo, attempt)
	case attempt != nil:
		printAttempt(g.stdout, *attempt)
	}
	return nil
}

// follow calls f with every event after the given seq, and returns the last
// seq.
func (c *listenCommand) follow(ctx context.Context, api *client.Client, after int64,
	f func(*client.Event) error) (int64, error) {
	for e, err := range api.Events(ctx, after) {
		if err != nil {
			return after, err
		}
		if err := f(e); err != nil {
			return after, err
		}
		after = e.Seq
	}
	return after, nil
}

// line formats an event for people.
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

// event converts an event of the API.
func event(e *client.Event) card.Event {
	return card.Event{ID: e.ID, Seq: e.Seq, Type: card.EventType(e.Type), CardUUID: e.CardUUID,
		Status: card.Status(e.Status),
		State:  card.PaymentState(e.PaymentState), Reference: card.Secret(e.Reference), WebhookID: e.WebhookID,
		Since: e.Since, CreatedAt: e.Timestamp}
}
