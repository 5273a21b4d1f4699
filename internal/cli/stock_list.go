package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
)

type stockListCommand struct {
	output `embed:""`

	Low       int64      `placeholder:"N" default:"-1" help:"Mark amounts of which fewer than N are free (low_stock of the supplier)."`
	Held      bool       `help:"Name every item that is held too, as 'stock release --except' takes it."`
	Suppliers stockFlags `embed:""`
}

func (stockListCommand) Help() string {
	return `FREE can be sold. SOON is free, but expires too soon to be given out; EXPIRED has expired. HELD waits for "cardmint stock release", because the database went back in time. Below that, every item is named that was issued to a card which never got it: the card was parked, is to be refunded, or was made by another supplier. The exit code is 1 if an amount is low.

Examples:
  cardmint stock list --suppliers suppliers.toml
  cardmint stock list --suppliers suppliers.toml --held
  cardmint stock list --suppliers suppliers.toml --low 20` + jsonHelp(stockJSON{})
}

// stockLine is what is in stock of a supplier and an amount.
type stockLine struct {
	Supplier  string   `json:"supplier"`
	USDAmount card.USD `json:"usd_amount"`
	Free      int64    `json:"free"`
	Reserved  int64    `json:"reserved"`
	Issued    int64    `json:"issued"`
	Held      int64    `json:"held"`
	Soon      int64    `json:"expire_soon"`
	Expired   int64    `json:"expired"`
	Low       bool     `json:"low"`
	Known     bool     `json:"in_file"` // the file of suppliers names the supplier
}

// stockJSON is what is in stock, for programs.
type stockJSON struct {
	Amounts       []stockLine `json:"amounts"`
	NeverReceived []itemJSON  `json:"never_received"`
	Held          []itemJSON  `json:"held_items"`
}

// Run prints what is in stock.
func (c stockListCommand) Run(ctx context.Context, g *globals) error {
	stocks, err := c.Suppliers.stocks(g)
	if err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		counts, err := o.db.StockCounts(ctx)
		if err != nil {
			return err
		}
		data := stockJSON{Amounts: stockLines(counts, stocks, time.Now())}
		low := 0
		for i := range data.Amounts {
			l := &data.Amounts[i]
			limit := c.Low
			if limit < 0 {
				limit = stocks[l.Supplier].LowStock
			}
			_, l.Known = stocks[l.Supplier]
			if l.Low = l.Known && l.Free < limit; l.Low {
				low++
			}
		}
		if data.NeverReceived, data.Held, err = o.doubtfulStock(ctx, ""); err != nil {
			return err
		}
		if !c.Held {
			data.Held = []itemJSON{}
		}
		if err := c.write(g, data, func(table io.Writer) { printStock(g, table, data) }); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(stocks)) {
			if !slices.ContainsFunc(data.Amounts, func(l stockLine) bool { return l.Supplier == name }) {
				fmt.Fprintf(g.stderr, "nothing was ever in the stock of %s; import cards with: cardmint stock import\n", name)
			}
		}
		if low > 0 {
			return app.WithHint(fmt.Errorf("amounts of which little is left: %d", low), "import cards with: cardmint stock import")
		}
		return nil
	})
}

func printStock(g *globals, table io.Writer, data stockJSON) {
	fmt.Fprintln(table, "SUPPLIER\tUSD\tFREE\tRESERVED\tISSUED\tHELD\tSOON\tEXPIRED\t")
	for _, l := range data.Amounts {
		mark := ""
		switch {
		case !l.Known:
			mark = "not in the file"
		case l.Low:
			mark = g.paint(g.stdout, red, "LOW")
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", l.Supplier, l.USDAmount, l.Free, l.Reserved, l.Issued,
			l.Held, l.Soon, l.Expired, mark)
	}
	printItems(table, "NEVER RECEIVED", data.NeverReceived)
	printItems(table, "HELD", data.Held)
}

// stockLines adds up counts, which must be sorted by supplier and amount.
func stockLines(counts []card.StockCount, stocks map[string]app.SupplierEntry, now time.Time) []stockLine {
	lines := []stockLine{}
	for _, n := range counts {
		if len(lines) == 0 || lines[len(lines)-1].Supplier != n.Supplier || lines[len(lines)-1].USDAmount != n.USD {
			lines = append(lines, stockLine{Supplier: n.Supplier, USDAmount: n.USD})
		}
		l := &lines[len(lines)-1]
		switch {
		case n.State == card.StockIssued:
			l.Issued += n.Items
		case n.State == card.StockReserved:
			l.Reserved += n.Items
		case !n.ExpiresAt.After(now):
			l.Expired += n.Items
		case n.State == card.StockHeld:
			l.Held += n.Items
		case !n.ExpiresAt.After(now.Add(stocks[n.Supplier].MinDuration)):
			l.Soon += n.Items
		default:
			l.Free += n.Items
		}
	}
	return lines
}

// itemJSON is an item that an operator has to look into, for programs. Only the
// last four digits of its number are shown.
type itemJSON struct {
	Item      uuid.UUID  `json:"item"`
	Supplier  string     `json:"supplier"`
	USDAmount card.USD   `json:"usd_amount"`
	ExpiresAt instant    `json:"expires_at"`
	Number    optional   `json:"number"`
	Card      *uuid.UUID `json:"card"`
}

// doubtfulStock returns the items that were issued to cards which never got
// them, and those that are held: of one supplier, or of all.
func (o office) doubtfulStock(ctx context.Context, supplier string) (never, held []itemJSON, err error) {
	found, err := o.db.DoubtfulStock(ctx)
	never, held = []itemJSON{}, []itemJSON{}
	for _, item := range found {
		if supplier != "" && item.Supplier != supplier {
			continue
		}
		one := itemJSON{Item: item.ID, Supplier: item.Supplier, USDAmount: item.USD, ExpiresAt: instant{item.ExpiresAt}}
		if item.Sealed != nil {
			shown, err := o.vault.MaskCredentials(item.ID, uuid.Nil, *item.Sealed)
			if err != nil {
				return nil, nil, app.WithHint(fmt.Errorf("item %s can't be decrypted: %w", item.ID, err),
					"the key file is not the one that the service uses, or the row was changed")
			}
			one.Number = optional(shown.CardNumber.Reveal())
		}
		if item.CardUUID != uuid.Nil {
			one.Card = &item.CardUUID
		}
		if item.State == card.StockHeld {
			held = append(held, one)
		} else {
			never = append(never, one)
		}
	}
	return never, held, err
}

// printItems prints items, if there are any.
func printItems(table io.Writer, title string, items []itemJSON) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(table, "\n%s\tSUPPLIER\tUSD\tEXPIRES\tNUMBER\tCARD\n", title)
	for _, item := range items {
		of := "-"
		if item.Card != nil {
			of = item.Card.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", item.Item, item.Supplier, item.USDAmount, day(&item.ExpiresAt.Time),
			orDash(string(item.Number)), of)
	}
}
