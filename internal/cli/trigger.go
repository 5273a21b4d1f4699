package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
)

type triggerCommand struct {
	apiFlags `embed:""`
	receiver `embed:""`
	output   `embed:""`
	Type     string            `arg:"" enum:"${event_types}" help:"Type of the event: ${enum}."`
	To       string            `placeholder:"URL" help:"Send an example event to this URL instead, about a card that does not exist. Without a scheme it is http to this machine and https to others."`
	Set      map[string]string `placeholder:"FIELD=VALUE" help:"With --to, another value for a field of the event: seq, timestamp, card_uuid, status, payment_state, reference, webhook_id or since. May be repeated."`
}

func (triggerCommand) Help() string {
	return `Creates a card in a sandbox, such as 'cardmint dev', and pays for it so that the event happens. Webhooks of the account and 'cardmint listen' receive it like any other. Of the types, ` + strings.Join(provokable(), ", ") + ` can be made to happen; card.refund_due needs 'cardmint dev --sandbox-supplier declining'.

With --to, sends an example event of any type to one URL, and fails unless the receiver answers 2xx. It is signed with the same secret as by 'cardmint listen'. The example's seq is 0.

Examples:
  cardmint trigger card.generated
  cardmint trigger payment.late --json
  cardmint trigger webhook.disabled --to localhost:3000/hook
  cardmint trigger card.generated --to localhost:3000/hook --set seq=42 \
    --header 'X-Tenant: shop'` + jsonHelp(sentEvent{})
}

// Run makes an event happen, or sends an example.
func (c *triggerCommand) Run(ctx context.Context, g *globals) error {
	switch {
	case c.To != "":
		return c.sendExample(ctx, g)
	case len(c.Set) > 0 || len(c.Header) > 0:
		return app.WithHint(errors.New("--set and --header are for examples"),
			"add --to URL, or leave them out to make the event happen in a sandbox")
	}
	provoke, can := provocations[client.EventType(c.Type)]
	if !can {
		return app.WithHint(fmt.Errorf("%s can't be made to happen in a sandbox", c.Type),
			"send an example: %s trigger %s --to localhost:3000/hook", programName(), c.Type)
	}
	api, err := c.apiFlags.open()
	if err != nil {
		return err
	}
	if !c.sandbox() {
		return app.WithHint(fmt.Errorf("%s sells real cards: trigger works in a sandbox only", c.URL),
			"start one with: %s dev", programName())
	}
	coins, err := api.ListCurrencies(ctx)
	if err != nil {
		return c.explain(err)
	}
	if len(coins) == 0 {
		return app.WithHint(errors.New("the service sells no cards at the moment"), "see its log")
	}
	made, err := api.CreateCard(ctx, client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: coins[0].Code})
	if err != nil {
		return c.explain(err)
	}
	if err := provoke(ctx, api, made, coins[0]); err != nil {
		return c.explain(err)
	}
	e, err := c.await(ctx, api, made.UUID)
	if err != nil {
		return err
	}
	if c.JSON {
		return printEvent(g, event(e), "", nil)
	}
	fmt.Fprintln(g.stdout, line(e))
	return nil
}

// provocations make events of a type happen to a new card.
var provocations = map[client.EventType]func(context.Context, *client.Client, *client.Card, client.Currency) error{
	client.EventTypeCardGenerated:    pay("1", nil),
	client.EventTypeCardRefundDue:    pay("1", nil),
	client.EventTypePaymentDetected:  pay("1", new(int32)),
	client.EventTypePaymentUnderpaid: pay("0.5", nil),
	client.EventTypePaymentCanceled:  cancelCard,
	client.EventTypePaymentLate: func(ctx context.Context, api *client.Client, c *client.Card, coin client.Currency) error {
		if err := cancelCard(ctx, api, c, coin); err != nil {
			return err
		}
		return pay("0.5", nil)(ctx, api, c, coin)
	},
}

// provokable returns the types of provocations.
func provokable() (types []string) {
	for t := range provocations {
		types = append(types, string(t))
	}
	slices.Sort(types)
	return types
}

// pay returns a provocation that calls payShare.
func pay(share string, confirmations *int32) func(context.Context, *client.Client, *client.Card, client.Currency) error {
	return func(ctx context.Context, api *client.Client, c *client.Card, coin client.Currency) error {
		err := payShare(ctx, api, c, coin.Decimals, share, confirmations)
		var refused *client.Error
		if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			return app.WithHint(errors.New("the service is no sandbox"), "start one with: %s dev", programName())
		}
		return err
	}
}

func cancelCard(ctx context.Context, api *client.Client, c *client.Card, _ client.Currency) error {
	_, err := api.CancelCard(ctx, c.UUID)
	return err
}

// triggerPatience is how long an event takes at most, once it was provoked.
const triggerPatience = 15 * time.Second

// await returns the event of the wanted type about a card.
func (c *triggerCommand) await(ctx context.Context, api *client.Client, id uuid.UUID) (*client.Event, error) {
	after, until := int64(0), time.Now().Add(triggerPatience)
	for time.Now().Before(until) {
		events, err := c.awaitEvents(ctx, api, after, id, 5*time.Second)
		if err != nil {
			return nil, c.explain(err)
		}
		for i, e := range events {
			if string(e.Type) == c.Type {
				return &events[i], nil
			}
			if e.Type == client.EventTypeCardGenerated || e.Type == client.EventTypeCardRefundDue {
				return nil, app.WithHint(fmt.Errorf("%s happened instead to card %s", e.Type, id),
					"'cardmint dev --sandbox-supplier' decides whether cards are issued: prompt, or declining")
			}
			after = e.Seq
		}
	}
	return nil, app.WithHint(fmt.Errorf("%s did not happen to card %s within %s", c.Type, id, triggerPatience),
		"the log of the sandbox may say why; follow the card with: %s card watch %s", programName(), id)
}

// sendExample sends one event that did not happen.
func (c *triggerCommand) sendExample(ctx context.Context, g *globals) error {
	e := card.ExampleEvent(uuid.Must(uuid.NewV7()), uuid.Nil, uuid.Must(uuid.NewV7()), card.EventType(c.Type))
	if err := set(&e, c.Set); err != nil {
		return err
	}
	if c.Token == "" {
		if dev, err := readDevState(); err == nil {
			c.Token = dev.Token // for the secret
		}
	}
	to := withScheme(c.To)
	if err := c.receiver.open(c.notes(g), to, c.Token); err != nil {
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
		"seq": func(v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 0 {
				return errors.New("must be a whole number of 0 or more")
			}
			e.Seq = n
			return nil
		},
		"timestamp": setTime(&e.CreatedAt),
	}
	switch e.Type {
	case card.EventWebhookDisabled:
		fields["webhook_id"] = setUUID(&e.WebhookID)
	case card.EventFeedReset:
		fields["since"] = setTime(&e.Since)
	default:
		fields["card_uuid"] = setUUID(&e.CardUUID)
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
				"openapi/openapi.yaml describes events; an example is: cardmint trigger %s --to URL", e.Type)
		}
	}
	return nil
}

func setTime(to *time.Time) func(string) error {
	return func(v string) error {
		at, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return errors.New("must be a time such as 2026-11-20T14:46:00Z")
		}
		*to = at
		return nil
	}
}

func setUUID(to *uuid.UUID) func(string) error {
	return func(v string) error {
		id, err := uuid.Parse(v)
		if err != nil {
			return errors.New("must be a uuid")
		}
		*to = id
		return nil
	}
}

func setOneOf[T ~string](to *T, all []T) func(string) error {
	return func(v string) error {
		if *to = T(v); !slices.Contains(all, *to) {
			return fmt.Errorf("must be one of: %s", strings.Trim(fmt.Sprint(all), "[]"))
		}
		return nil
	}
}
