package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/app"
)

type cardPayCommand struct {
	apiFlags      `embed:""`
	output        `embed:""`
	UUID          string `arg:"" optional:"" help:"The card's uuid. Defaults to the newest card that waits for a payment."`
	Amount        string `placeholder:"COINS" help:"How much to send. Defaults to the amount due."`
	Confirmations int32  `default:"-1" placeholder:"N" help:"Confirmations of the transfer; 0 leaves it outside of blocks. Defaults to all that are required."`
}

func (cardPayCommand) Help() string {
	return `Works only in a sandbox, such as 'cardmint dev', where it sends simulated coins to the card's address. Elsewhere, pay from a wallet.

Examples:
  cardmint card pay
  cardmint card pay 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 --amount 0.1
  cardmint card pay --confirmations 1 --json` + jsonHelp(client.Card{})
}

// payShare pays a share of a card's price in a sandbox, with as many
// confirmations as the card needs unless the number is given.
func payShare(ctx context.Context, api *client.Client, c *client.Card, decimals int32, share string,
	confirmations *int32) error {
	amount := c.Payment.Amount.Mul(decimal.RequireFromString(share)).Truncate(decimals)
	_, err := api.SimulatePayment(ctx, c.UUID, client.SimulatePaymentRequest{Amount: &amount, Confirmations: confirmations})
	return err
}

// Run pays for a card in a sandbox.
func (c *cardPayCommand) Run(ctx context.Context, g *globals) error {
	var payment client.SimulatePaymentRequest
	if c.Amount != "" {
		amount, err := decimal.NewFromString(c.Amount)
		if err != nil {
			return app.WithHint(fmt.Errorf("%q is not an amount of coins", c.Amount), "for example: cardmint card pay --amount 0.1")
		}
		payment.Amount = &amount
	}
	if c.Confirmations >= 0 {
		payment.Confirmations = &c.Confirmations
	}
	api, err := c.open()
	if err != nil {
		return err
	}
	waiting := client.ListCardsOptions{Status: client.CardStatusAwaitingPayment, PageSize: 100}
	found, err := cardArg{c.UUID}.find(ctx, api, &c.apiFlags, waiting, func(one *client.Card) bool {
		s := one.Payment.State
		return s == client.PaymentStateUnpaid || s == client.PaymentStateUnderpaid
	})
	if err != nil {
		return err
	}
	paid, err := api.SimulatePayment(ctx, found.UUID, payment)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return app.WithHint(fmt.Errorf("%s is no sandbox", c.URL), "pay %s %s to %s from a wallet", found.Payment.AmountDue,
			found.Payment.Currency, oneLine(found.Payment.Address))
	}
	if err != nil {
		return c.explain(err)
	}
	return c.write(g, paid, func(table io.Writer) {
		fmt.Fprintf(table, "card\t%s\n", paid.UUID)
		fmt.Fprintf(table, "payment\t%s\n", describePayment(paid))
		printCredentials(table, paid)
	})
}
