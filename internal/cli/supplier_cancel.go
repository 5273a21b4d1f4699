package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/supplier"
)

type supplierCancelCommand struct {
	output   `embed:""`
	UUID     string `arg:"" help:"The card's uuid."`
	File     string `name:"suppliers" env:"CARDMINT_SUPPLIERS" required:"" placeholder:"FILE" help:"TOML file with the suppliers of cards."`
	Note     string `required:"" placeholder:"TEXT" help:"The reason. It is logged."`
	Operator string `placeholder:"NAME" help:"Who decided. Without it, the user of this machine."`
	Yes      bool   `help:"Do it. Without it, the command only prints its plan."`
}

func (supplierCancelCommand) Help() string {
	return `Asks the supplier of a card to make none for its request, or to close the card if it is made and the supplier can do that: to limit the loss when a payment left its blockchain, for example. The next look-up of a request that was canceled finds it declined: then another supplier is asked, or the refund is due.

A stock only takes back what it has reserved for the card, and keeps no note of it: a card that is paid gets an item at the next attempt. An item that was issued stays issued.

Example:
  cardmint supplier cancel 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 \
    --suppliers suppliers.toml --note "the payment is gone" --yes` + jsonHelp(canceledJSON{})
}

// canceler is a supplier that can cancel requests.
type canceler interface {
	// Cancel returns Declined if no card will be made, or if the card is
	// closed.
	Cancel(ctx context.Context, r issue.Request) (issue.Answer, error)
}

// Run cancels a request. Without --yes it only prints its plan.
func (c supplierCancelCommand) Run(ctx context.Context, g *globals) error {
	id, err := cardID(c.UUID)
	if err != nil {
		return err
	}
	who, err := operatorName(c.Note, c.Operator)
	if err != nil {
		return err
	}
	all, err := app.SupplierConfig{File: c.File}.Read(g.Mode)
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		record, err := admin.db.CardDetail(ctx, id)
		if err != nil {
			return noCard(err, id)
		}
		i := record.Intent
		if i == nil || i.Supplier == "" || i.Answer == "" && i.FirstAskedAt == nil {
			return app.WithHint(fmt.Errorf("no supplier was asked for card %s", id),
				"there is nothing to cancel; see it with: cardmint card show %s", id)
		}
		asked, err := openCanceler(all, app.SupplierOptions{Mode: g.Mode, Store: admin.db, Vault: admin.vault, Log: g.Log}, i)
		if err != nil {
			return err
		}
		if !c.Yes {
			return c.write(g, canceledJSON{Card: id, Supplier: i.Supplier}, func(w io.Writer) {
				fmt.Fprintf(w, "would %s. Nothing was changed. To do it, run it again with --yes.\n",
					cancelPlan(asked, i.Supplier, id))
			})
		}
		asking, cancel := context.WithTimeout(ctx, supplierCheckTime)
		defer cancel()
		// logged before the answer: the request may be canceled although it
		// fails
		g.audited(ctx, "supplier_request_canceled", who, about("card", id), slog.String("supplier", i.Supplier))
		answer, err := asked.Cancel(asking,
			issue.Request{Key: id.String(), Reference: i.Reference, USD: record.Card.USD, Declines: i.Declines})
		if err != nil {
			return app.WithHint(fmt.Errorf("%s gave no clear answer: %w", i.Supplier, err),
				"it may have canceled the request or not: run the command again")
		}
		return c.write(g, canceledJSON{id, i.Supplier, true, fmt.Sprint(answer.Outcome)}, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %s\n", i.Supplier, cancelResult(asked, answer.Outcome))
		})
	})
}

// openCanceler opens the supplier of an intent.
func openCanceler(suppliers app.Suppliers, opts app.SupplierOptions, i *operator.IntentRecord) (canceler, error) {
	opened, _, err := suppliers.Open(opts)
	if err != nil {
		return nil, err
	}
	for _, m := range opened {
		if m.Name() != i.Supplier {
			continue
		}
		if c, can := m.(canceler); can {
			return c, nil
		}
		return nil, app.WithHint(errors.New("supplier "+i.Supplier+" can't cancel a request"), "its cards are not real")
	}
	return nil, app.WithHint(errors.New("the file has no supplier "+i.Supplier),
		"name the file of suppliers that was in use")
}

// cancelPlan describes canceling the request for a card.
func cancelPlan(c canceler, name string, id uuid.UUID) string {
	if _, stock := c.(*supplier.Stock); stock {
		return fmt.Sprintf(
			"free what the stock of %s has reserved for card %s; if it is paid, it gets an item nevertheless, and one that was issued stays issued", name, id)
	}
	return fmt.Sprintf("ask %s to cancel its request for card %s, or to close the card", name, id)
}

// cancelResult describes the outcome of canceling a request.
func cancelResult(c canceler, o issue.Outcome) string {
	switch _, stock := c.(*supplier.Stock); {
	case stock && o == issue.Issued:
		return "an item was issued to the card, and stays issued: a stock can close no card"
	case stock:
		return "nothing is reserved for the card. If it is paid, it gets an item at the next attempt of a worker: to prevent that, hold the stock"
	}
	switch o {
	case issue.Declined:
		return "canceled: no card was made and none will be, or the card is closed"
	case issue.Issued:
		return "the card is made, and stays as it is"
	case issue.Pending:
		return "not canceled yet: run the command again"
	}
	return "it does not know the request"
}
