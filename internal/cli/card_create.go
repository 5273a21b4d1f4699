package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/app"
)

type cardCreateCommand struct {
	apiFlags       `embed:""`
	output         `embed:""`
	USD            string `arg:"" name:"usd" help:"Value of the card in US dollars, for example 150."`
	Currency       string `placeholder:"CODE" help:"Coin to pay with, for example monero. Defaults to the first that the service offers."`
	RefundAddress  string `placeholder:"ADDRESS" help:"Your address for refunds."`
	Reference      string `placeholder:"TEXT" help:"Your name for the card, such as the number of an order."`
	IdempotencyKey string `placeholder:"KEY" help:"Key that makes the command safe to repeat: with the same key and arguments, it prints the same card again."`
}

func (cardCreateCommand) Help() string {
	return `Prints the amount and the address to pay to.

Examples:
  cardmint card create 150
  cardmint card create 99.50 --currency monero --reference order-4711
  cardmint card create 150 --idempotency-key order-4711 --json` + jsonHelp(client.Card{})
}

// Run orders a card.
func (c *cardCreateCommand) Run(ctx context.Context, g *globals) error {
	amount, err := decimal.NewFromString(c.USD)
	if err != nil {
		return app.WithHint(fmt.Errorf("%q is not an amount of US dollars", c.USD), "for example: cardmint card create 150")
	}
	api, err := c.open()
	if err != nil {
		return err
	}
	if c.Currency == "" {
		coins, err := api.ListCurrencies(ctx)
		if err != nil {
			return c.explain(err)
		}
		if len(coins) == 0 {
			return app.WithHint(errors.New("the service sells no cards at the moment"), "try again later, or ask its operator")
		}
		c.Currency = coins[0].Code
	}
	var options []client.CallOption
	if c.IdempotencyKey != "" {
		options = append(options, client.WithIdempotencyKey(c.IdempotencyKey))
	}
	made, err := api.CreateCard(ctx, client.CreateCardRequest{USDAmount: amount, Currency: c.Currency,
		RefundAddress: c.RefundAddress, Reference: c.Reference}, options...)
	if err != nil {
		return c.explain(err)
	}
	if err := c.write(g, made, func(table io.Writer) {
		p := made.Payment
		fmt.Fprintf(table, "card\t%s\n", made.UUID)
		fmt.Fprintf(table, "pay\t%s %s for %s US dollars\n", p.Amount, p.Currency, made.USDAmount)
		fmt.Fprintf(table, "to\t%s\n", oneLine(p.Address))
		fmt.Fprintf(table, "until\t%s\n", p.ExpiresAt.UTC().Format(time.RFC3339))
	}); err != nil || c.JSON {
		return err
	}
	if c.sandbox() {
		fmt.Fprintf(g.stderr, "\nPay without money: %s card pay\n", programName())
	} else {
		fmt.Fprintf(g.stderr, "\nFollow it: %s card watch\n", programName())
	}
	return nil
}
