package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
)

// stockFlags say which suppliers have a stock.
type stockFlags struct {
	File string `name:"suppliers" env:"CARDMINT_SUPPLIERS" required:"" placeholder:"FILE" help:"TOML file that names the suppliers of cards."`
}

// stocks returns the suppliers that have a stock, by name.
func (f stockFlags) stocks(g *globals) (map[string]supplierEntry, error) {
	all, err := supplierFlags{File: f.File}.read(g.Mode)
	if err != nil {
		return nil, err
	}
	stocks := map[string]supplierEntry{}
	for _, e := range all.entries {
		if e.Kind == stockKind {
			stocks[e.Name] = e
		}
	}
	return stocks, nil
}

// stock returns the entry of the supplier with a name.
func (f stockFlags) stock(g *globals, name string) (supplierEntry, error) {
	stocks, err := f.stocks(g)
	if err != nil {
		return supplierEntry{}, err
	}
	e, known := stocks[name]
	if !known {
		return e, hint(fmt.Errorf("--supplier: %s names no supplier %q of kind %s", f.File, name, stockKind), "those that it names: %s",
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(stocks)), ", "), "none"))
	}
	return e, nil
}

type stockImportCommand struct {
	File     string `arg:"" type:"path" help:"CSV file with a header and the columns usd_amount, card_number, expiration_date (MM/YY), security_code, url, url_password. Only its owner may read it."`
	Supplier string `required:"" placeholder:"NAME" help:"The supplier whose stock it is."`
	Yes      bool   `help:"Import it. Otherwise the command only says what it would do."`

	Suppliers stockFlags `embed:""`
}

func (stockImportCommand) Help() string {
	return `Every line is checked first, and every bad one is named by its number; then all are imported, or none. A card that is in the file twice, that is in stock, or that was ever issued is refused. What is imported is encrypted. Delete the file afterwards.

The exit code is 1 if nothing was imported because of a mistake.

Examples:
  cardmint stock import cards.csv --supplier shelf --suppliers suppliers.toml
  cardmint stock import cards.csv --supplier shelf --suppliers suppliers.toml --yes`
}

// Run checks a file, and imports it.
func (c stockImportCommand) Run(ctx context.Context, g *globals) error {
	e, err := c.Suppliers.stock(g, c.Supplier)
	if err != nil {
		return err
	}
	file, err := os.Open(c.File)
	if err != nil {
		return hint(err, "name a file that can be read")
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return hint(fmt.Errorf("%s can be read by others than its owner", c.File), "take the rights away from others: chmod 600 %s", c.File)
	}
	return g.office(ctx, func(o office) error {
		now := time.Now()
		i := supplier.Import{Shelf: o.db, Vault: o.vault, Supplier: e.Name, Min: e.min, Max: e.max, Now: now, Soon: now.Add(e.minValidity),
			Wrong:    func(line int, why string) { fmt.Fprintf(g.stderr, "line %d: %s\n", line, why) },
			Progress: func(lines int) { fmt.Fprintf(g.stderr, "%d lines\n", lines) }}
		return c.run(ctx, g, i, file)
	})
}

func (c stockImportCommand) run(ctx context.Context, g *globals, i supplier.Import, file *os.File) error {
	fmt.Fprintln(g.stderr, "checking", c.File)
	found, err := i.Check(ctx, file)
	if err != nil {
		return hint(err, "nothing was imported; cardmint stock import --help says what is in the file")
	}
	if found.Wrong > 0 {
		return hint(fmt.Errorf("nothing was imported: lines that are wrong: %d", found.Wrong), "mend them or take them out, and run it again")
	}
	total := 0
	table := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "USD\tCARDS")
	for _, usd := range slices.Sorted(maps.Keys(found.Cards)) {
		fmt.Fprintf(table, "%s\t%d\n", usd, found.Cards[usd])
		total += found.Cards[usd]
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if found.Soon > 0 {
		fmt.Fprintf(g.stdout, "%d of them expire too soon to be given out\n", found.Soon)
	}
	if !c.Yes {
		fmt.Fprintf(g.stdout, "would import %d cards into the stock of %s. Nothing was changed. Run it again with --yes.\n", total, i.Supplier)
		return nil
	}
	fmt.Fprintln(g.stderr, "importing")
	imported, err := i.Store(ctx, file)
	if errors.Is(err, card.ErrDuplicate) {
		return hint(errors.New("nothing was imported: another import had one of these cards meanwhile"), "run it again without --yes to see which")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(g.stdout, "imported %d cards into the stock of %s\n", imported, i.Supplier)
	return nil
}

type stockListCommand struct {
	Low       int64      `placeholder:"N" default:"-1" help:"Mark amounts of which fewer than N are free (low_stock of the supplier)."`
	Suppliers stockFlags `embed:""`
}

func (stockListCommand) Help() string {
	return `FREE can be sold. SOON is free, but expires too soon to be given out; EXPIRED has expired. HELD waits for "cardmint stock release", because the database went back in time. The exit code is 1 if an amount is low.

Examples:
  cardmint stock list --suppliers suppliers.toml
  cardmint stock list --suppliers suppliers.toml --low 20`
}

// stockLine is what is in stock of a supplier and an amount.
type stockLine struct {
	supplier                                    string
	usd                                         card.USD
	free, reserved, issued, held, soon, expired int64
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
		table := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "SUPPLIER\tUSD\tFREE\tRESERVED\tISSUED\tHELD\tSOON\tEXPIRED\t")
		low := 0
		for _, l := range stockLines(counts, stocks, time.Now()) {
			limit := c.Low
			if limit < 0 {
				limit = stocks[l.supplier].LowStock
			}
			mark := ""
			if _, known := stocks[l.supplier]; !known {
				mark = "not in the file"
			} else if l.free < limit {
				low++
				mark = "LOW"
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", l.supplier, l.usd, l.free, l.reserved, l.issued, l.held, l.soon, l.expired, mark)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		if low > 0 {
			return hint(fmt.Errorf("amounts of which little is left: %d", low), "import cards with: cardmint stock import")
		}
		return nil
	})
}

// stockLines adds up counts, which must be sorted by supplier and amount.
func stockLines(counts []card.StockCount, stocks map[string]supplierEntry, now time.Time) []stockLine {
	var lines []stockLine
	for _, n := range counts {
		if len(lines) == 0 || lines[len(lines)-1].supplier != n.Supplier || lines[len(lines)-1].usd != n.USD {
			lines = append(lines, stockLine{supplier: n.Supplier, usd: n.USD})
		}
		l := &lines[len(lines)-1]
		switch {
		case n.State == card.StockIssued:
			l.issued += n.Items
		case n.State == card.StockReserved:
			l.reserved += n.Items
		case !n.ExpiresAt.After(now):
			l.expired += n.Items
		case n.State == card.StockHeld:
			l.held += n.Items
		case !n.ExpiresAt.After(now.Add(stocks[n.Supplier].minValidity)):
			l.soon += n.Items
		default:
			l.free += n.Items
		}
	}
	return lines
}

type stockHoldCommand struct {
	Supplier  string     `required:"" placeholder:"NAME" help:"The supplier whose stock it is."`
	Suppliers stockFlags `embed:""`
}

func (stockHoldCommand) Help() string {
	return `Nothing that is in stock now is sold or given out until "cardmint stock release". The service does this by itself when it notices that the database went back in time. It can't notice if database and wallet were put back together, by a snapshot of the whole machine for example: then run this before you start it.

Example:
  cardmint stock hold --supplier shelf --suppliers suppliers.toml`
}

// Run holds what is in stock.
func (c stockHoldCommand) Run(ctx context.Context, g *globals) error {
	e, err := c.Suppliers.stock(g, c.Supplier)
	if err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		n, err := o.db.HoldStock(ctx, e.Name)
		if err != nil {
			return err
		}
		fmt.Fprintf(g.stdout, "holding %d more cards\n", n)
		return nil
	})
}

type stockReleaseCommand struct {
	Supplier string `required:"" placeholder:"NAME" help:"The supplier whose stock it is."`
	Yes      bool   `help:"Release it. Otherwise the command only says what it would do."`

	Suppliers stockFlags `embed:""`
}

func (stockReleaseCommand) Help() string {
	return `When a database has gone back in time, by a restored backup for example, cards that are free in it may have been given out since. So nothing is given out that was in stock then, until an operator releases it. First find out from your records, or from the supplier, that no card was given out in the time that was lost. What is imported later is not held.

Example:
  cardmint stock release --supplier shelf --suppliers suppliers.toml --yes`
}

// Run releases the items that are held.
func (c stockReleaseCommand) Run(ctx context.Context, g *globals) error {
	e, err := c.Suppliers.stock(g, c.Supplier)
	if err != nil {
		return err
	}
	return g.office(ctx, func(o office) error {
		if c.Yes {
			n, err := o.db.ReleaseStock(ctx, e.Name)
			if err != nil {
				return err
			}
			fmt.Fprintf(g.stdout, "released %d cards\n", n)
			return nil
		}
		counts, err := o.db.StockCounts(ctx)
		if err != nil {
			return err
		}
		held := int64(0)
		for _, n := range counts {
			if n.Supplier == e.Name && n.State == card.StockHeld {
				held += n.Items
			}
		}
		fmt.Fprintf(g.stdout, "would release %d cards. Nothing was changed. If none of them was given out, run it again with --yes.\n", held)
		return nil
	})
}
