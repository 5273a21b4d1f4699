package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
)

type triggerCommand struct {
	receiver `embed:""`
	output   `embed:""`
	Type     string            `arg:"" enum:"${event_types}" help:"Type of the event: ${enum}."`
	To       string            `default:"http://localhost:3000/hook" placeholder:"URL" help:"URL to send it to. Without a scheme it is http to this machine and https to others (${default})."`
	Set      map[string]string `placeholder:"FIELD=VALUE" help:"Another value for a field of the event: seq, timestamp, card_uuid, status, payment_state, reference, webhook_id or since. May be repeated."`
	Token    string            `env:"CARDMINT_TOKEN" placeholder:"TOKEN" help:"The account's API token, if requests are to be signed with the same secret as those of 'cardmint listen'. It is sent nowhere."`
}

func (triggerCommand) Help() string {
	return `The event is made up: its card does not exist, and its seq is 0, unless --set says otherwise. It fails unless the receiver answers 2xx.

Examples:
  cardmint trigger card.generated
  cardmint trigger payment.late --to localhost:8000/webhooks --header 'X-Tenant: shop'
  cardmint trigger card.generated --set card_uuid=019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 --set seq=42
  CARDMINT_WEBHOOK_SECRET=whsec_... cardmint trigger payment.late --json` + jsonHelp(sentEvent{})
}

// Run sends one event.
func (c *triggerCommand) Run(ctx context.Context, g *globals) error {
	e := card.ExampleEvent(uuid.Must(uuid.NewV7()), uuid.Nil, uuid.Must(uuid.NewV7()), card.EventType(c.Type))
	if err := set(&e, c.Set); err != nil {
		return err
	}
	to := withScheme(c.To)
	if err := c.open(c.notes(g), to, c.Token); err != nil {
		return err
	}
	defer c.poster.Close()
	a := c.send(ctx, to, e)
	if c.JSON {
		if err := printEvent(g, e, to, &a); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(g.stdout, "%s %s\n", e.ID, e.Payload())
		printAttempt(g.stdout, a)
	}
	if !a.OK() {
		return app.WithHint(errors.New("the receiver did not take the event"),
			"it has to answer 2xx within %s; start it, or name another with --to", receiverTimeout)
	}
	return nil
}

// set sets fields of an event. Its type must have them.
func set(e *card.Event, values map[string]string) error {
	fields := map[string]func(string) error{
		"seq": func(v string) (err error) {
			if e.Seq, err = strconv.ParseInt(v, 10, 64); e.Seq < 0 {
				err = errors.New("must be 0 or more")
			}
			return err
		},
		"timestamp": setTime(&e.CreatedAt),
	}
	switch e.Type {
	case card.EventWebhookDisabled:
		fields["webhook_id"] = func(v string) (err error) { e.WebhookID, err = uuid.Parse(v); return err }
	case card.EventFeedReset:
		fields["since"] = setTime(&e.Since)
	default:
		fields["card_uuid"] = func(v string) (err error) { e.CardUUID, err = uuid.Parse(v); return err }
		fields["status"] = setOneOf(&e.Status, []card.Status{card.AwaitingPayment, card.Generated})
		fields["reference"] = func(v string) error { e.Reference = card.Secret(v); return nil }
		fields["payment_state"] = setOneOf(&e.State, card.PaymentStates())
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		change, known := fields[name]
		if !known {
			return app.WithHint(fmt.Errorf("--set: %s has no field %q that can be set", e.Type, name), "it has: %s",
				strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if err := change(values[name]); err != nil {
			return app.WithHint(fmt.Errorf("--set %s=%s: %w", name, values[name], err),
				"openapi/openapi.yaml describes events; an example is: cardmint trigger %s", e.Type)
		}
	}
	return nil
}

func setTime(to *time.Time) func(string) error {
	return func(v string) (err error) { *to, err = time.Parse(time.RFC3339, v); return err }
}

func setOneOf[T ~string](to *T, all []T) func(string) error {
	return func(v string) error {
		if *to = T(v); !slices.Contains(all, *to) {
			return fmt.Errorf("must be one of %v", all)
		}
		return nil
	}
}
