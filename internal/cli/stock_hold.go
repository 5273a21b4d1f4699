package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
)

type stockHoldCommand struct {
	output `embed:""`

	Supplier  string     `required:"" placeholder:"NAME" help:"The supplier whose stock it is."`
	Suppliers stockFlags `embed:""`
}

func (stockHoldCommand) Help() string {
	return `Nothing that is in stock now is sold or given out until "cardmint stock release". The service does this by itself when it notices that the database went back in time. It can't notice if database and wallet were put back together, by a snapshot of the whole machine for example: then run this before you start it. It also names the items that were issued to a card which never got them: they are not sold again by themselves.

Example:
  cardmint stock hold --supplier shelf --suppliers suppliers.toml` + jsonHelp(holdJSON{})
}

// holdJSON is what was held, or released, or would be.
type holdJSON struct {
	Supplier      string     `json:"supplier"`
	Changed       int64      `json:"changed"`
	Held          []itemJSON `json:"held_items"`
	NeverReceived []itemJSON `json:"never_received"`
}

// now reads what is held by now.
func (j *holdJSON) now(ctx context.Context, o office) (err error) {
	j.NeverReceived, j.Held, err = o.doubtfulStock(ctx, j.Supplier)
	return err
}

// Run holds what is in stock.
func (c stockHoldCommand) Run(ctx context.Context, g *globals) error {
	e, err := c.Suppliers.stock(g, c.Supplier)
	if err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		data := holdJSON{Supplier: e.Name}
		var err error
		if data.Changed, err = o.db.HoldStock(ctx, e.Name); err != nil {
			return err
		}
		g.audited(ctx, "stock_held", "", slog.String("supplier", e.Name), slog.Int64("cards", data.Changed))
		if err := data.now(ctx, o); err != nil {
			return err
		}
		return c.write(g, data, func(w io.Writer) {
			fmt.Fprintf(w, "holding %d more cards\n", data.Changed)
			printItems(w, "NEVER RECEIVED", data.NeverReceived)
		})
	})
}

type stockReleaseCommand struct {
	output `embed:""`

	Supplier string      `required:"" placeholder:"NAME" help:"The supplier whose stock it is."`
	Except   []uuid.UUID `placeholder:"ITEM,..." help:"Items that stay held, because they were given out. May be repeated."`
	Yes      bool        `help:"Release it. Otherwise the command only says what it would do."`

	Suppliers stockFlags `embed:""`
}

func (stockReleaseCommand) Help() string {
	return `When a database has gone back in time, by a restored backup for example, cards that are free in it may have been given out since. So nothing is given out that was in stock then, until an operator releases it. First find out from your records, or from the supplier, that no card was given out in the time that was lost. Without --yes, the command names every item that is held, with the end of its card number: leave those out by --except that were. They stay held. What is imported later is not held.

Examples:
  cardmint stock release --supplier shelf --suppliers suppliers.toml
  cardmint stock release --supplier shelf --suppliers suppliers.toml --except 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 --yes` + jsonHelp(holdJSON{})
}

// Run releases the items that are held.
func (c stockReleaseCommand) Run(ctx context.Context, g *globals) error {
	e, err := c.Suppliers.stock(g, c.Supplier)
	if err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		data := holdJSON{Supplier: e.Name}
		if err := data.now(ctx, o); err != nil {
			return err
		}
		for _, id := range c.Except {
			if !slices.ContainsFunc(data.Held, func(i itemJSON) bool { return i.Item == id }) {
				return app.WithHint(fmt.Errorf("--except: %s is no item of %s that is held", id, e.Name),
					"see the items with: cardmint stock release --supplier %s", e.Name)
			}
		}
		if !c.Yes {
			released := slices.DeleteFunc(slices.Clone(data.Held), func(i itemJSON) bool {
				return slices.Contains(c.Except, i.Item)
			})
			return c.write(g, data, func(w io.Writer) {
				fmt.Fprintf(w,
					"would release %d cards. Nothing was changed. If none of them was given out, run it again with --yes.\n",
					len(released))
				printItems(w, "HELD", data.Held)
			})
		}
		var err error
		if data.Changed, err = o.db.ReleaseStock(ctx, e.Name, c.Except); err != nil {
			return err
		}
		g.audited(ctx, "stock_released", "", slog.String("supplier", e.Name), slog.Int64("cards", data.Changed))
		if err := data.now(ctx, o); err != nil {
			return err
		}
		return c.write(g, data, func(w io.Writer) {
			fmt.Fprintf(w, "released %d cards\n", data.Changed)
			printItems(w, "HELD", data.Held)
		})
	})
}
