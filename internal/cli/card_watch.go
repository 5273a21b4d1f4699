package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/app"
)

type cardWatchCommand struct {
	apiFlags `embed:""`
	output   `embed:""`
	cardArg  `embed:""`
	Reveal   bool `help:"Show the whole card number, security code and password also outside of a sandbox."`
}

func (cardWatchCommand) Help() string {
	return `Prints a line for each change until the card is issued, and then its credentials. Fails if the payment expires, is canceled, or comes too late.

Examples:
  cardmint card watch
  cardmint card watch 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88
  cardmint card watch --json` + jsonHelp(client.Card{}) + " One line for each change."
}

// Run prints a card's changes until it is issued or can't be paid any more.
func (c *cardWatchCommand) Run(ctx context.Context, g *globals) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	newest := client.ListCardsOptions{PageSize: 1}
	seen, err := c.find(ctx, api, &c.apiFlags, newest, func(*client.Card) bool { return true })
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(g.stderr, "card %s\n", seen.UUID)
	}
	after := int64(0)
	for last := ""; ; {
		if now := fmt.Sprint(seen.Status, describePayment(seen)); now != last {
			last = now
			if err := c.print(ctx, g, api, seen); err != nil {
				return err
			}
		}
		if seen.Status == client.CardStatusGenerated {
			return nil
		}
		if err := ended(seen); err != nil {
			return err
		}
		after = c.await(ctx, api, seen.UUID, after)
		next, err := api.GetCard(ctx, seen.UUID)
		switch {
		case ctx.Err() != nil:
			return app.WithHint(errors.New("stopped: the card is not issued yet"), "continue with: %s card watch %s",
				programName(), seen.UUID)
		case err != nil:
			return c.withoutCard(err, seen.UUID)
		}
		seen = next
	}
}

// Confirmations are no events: the card is read at least this often.
const watchEvery = 10 * time.Second

// await waits for an event of a card after the given one, and returns the last
// one. Without the feed, it pauses.
func (c *cardWatchCommand) await(ctx context.Context, api *client.Client, id uuid.UUID, after int64) int64 {
	began := time.Now()
	events, err := c.awaitEvents(ctx, api, after, id, watchEvery)
	for _, e := range events {
		after = max(after, e.Seq)
	}
	if err != nil || len(events) == 0 && time.Since(began) < time.Second {
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
	return after
}

// print prints a state of the card.
func (c *cardWatchCommand) print(ctx context.Context, g *globals, api *client.Client, seen *client.Card) error {
	if seen.Status == client.CardStatusGenerated {
		shown, err := c.credentials(ctx, api, seen)
		if err != nil {
			return err
		}
		seen = shown
	}
	return c.write(g, seen, func(table io.Writer) {
		fmt.Fprintf(table, "%s\t%s\n", time.Now().Format(time.TimeOnly), describePayment(seen))
		printCredentials(table, seen)
	})
}

// credentials returns the card with whole credentials in a sandbox or with
// --reveal, and with masked ones otherwise.
func (c *cardWatchCommand) credentials(ctx context.Context, api *client.Client, seen *client.Card) (*client.Card, error) {
	masked := strings.Contains(seen.Credentials.CardNumber, "*")
	if c.Reveal || c.sandbox() {
		if !masked {
			return seen, nil
		}
		shown, err := api.RevealCard(ctx, seen.UUID)
		return shown, c.withoutCard(err, seen.UUID)
	}
	hidden := *seen
	k := &hidden.Credentials
	if n := len(k.CardNumber); n > 4 {
		k.CardNumber = strings.Repeat("*", n-4) + k.CardNumber[n-4:]
	}
	k.SecurityCode = strings.Repeat("*", len(k.SecurityCode))
	k.URLPassword = strings.Repeat("*", len(k.URLPassword))
	return &hidden, nil
}

// ended returns an error if a card can't be paid any more.
func ended(c *client.Card) error {
	s := c.Payment.State
	refunded := c.Refund != nil && s == client.PaymentStateUnpaid
	if !refunded && s != client.PaymentStateExpired && s != client.PaymentStateLate && s != client.PaymentStateCanceled {
		return nil
	}
	err := &client.PaymentError{UUID: c.UUID, State: s, Refunded: c.Refund != nil}
	text, advice, _ := strings.Cut(err.Error(), ": ")
	return app.WithHint(errors.New(text), "%s", advice)
}

// describePayment returns how far the payment of a card is.
func describePayment(c *client.Card) string {
	p := c.Payment
	switch text := string(p.State); {
	case p.State == client.PaymentStateUnpaid:
		return fmt.Sprintf("%s: %s %s is due", text, p.AmountDue, p.Currency)
	case p.State == client.PaymentStateUnderpaid:
		return fmt.Sprintf("%s: %s %s arrived, send %s more", text, p.AmountReceived, p.Currency, p.AmountDue)
	case p.State == client.PaymentStateDetected, p.State == client.PaymentStateConfirming:
		return fmt.Sprintf("%s: %s %s arrived, %d of %d confirmations", text, p.AmountReceived, p.Currency, p.Confirmations,
			p.ConfirmationsRequired)
	case p.State == client.PaymentStatePaid && p.RefundDue.IsPositive():
		return fmt.Sprintf("%s: no supplier issues the card, a refund of %s %s is due", text, p.RefundDue, p.Currency)
	case p.State == client.PaymentStatePaid && c.Status != client.CardStatusGenerated:
		return text + ": the card is being issued"
	case p.State == client.PaymentStatePaid, p.State == client.PaymentStateLate, p.State == client.PaymentStateReversed:
		return fmt.Sprintf("%s: %s %s arrived", text, p.AmountReceived, p.Currency)
	default:
		return text
	}
}

// printCredentials prints the credentials of a card that has some.
func printCredentials(table io.Writer, c *client.Card) {
	k := c.Credentials
	if c.Status != client.CardStatusGenerated {
		return
	}
	for _, row := range [][2]string{{"number", k.CardNumber}, {"expires", k.ExpirationDate}, {"code", k.SecurityCode},
		{"web", k.URL}, {"password", k.URLPassword}} {
		if row[1] != "" {
			fmt.Fprintf(table, "%s\t%s\n", row[0], oneLine(row[1]))
		}
	}
}
