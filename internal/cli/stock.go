package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
)

// stockFlags say which suppliers have a stock.
type stockFlags struct {
	File string `name:"suppliers" env:"CARDMINT_SUPPLIERS" required:"" placeholder:"FILE" help:"TOML file that names the suppliers of cards."`
}

// stocks returns the suppliers that have a stock, by name.
func (f stockFlags) stocks(g *globals) (map[string]app.SupplierEntry, error) {
	all, err := app.SupplierConfig{File: f.File}.Read(g.Mode)
	if err != nil {
		return nil, err
	}
	stocks := map[string]app.SupplierEntry{}
	for _, e := range all.Entries {
		if e.Kind == app.StockKind {
			stocks[e.Name] = e
		}
	}
	return stocks, nil
}

// stock returns the entry of the supplier with a name.
func (f stockFlags) stock(g *globals, name string) (app.SupplierEntry, error) {
	stocks, err := f.stocks(g)
	if err != nil {
		return app.SupplierEntry{}, err
	}
	e, known := stocks[name]
	if !known {
		return e, app.WithHint(fmt.Errorf("--supplier: %s names no supplier %q of kind %s", f.File, name, app.StockKind),
			"those that it names: %s",
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(stocks)), ", "), "none"))
	}
	return e, nil
}

type stockImportCommand struct {
	output `embed:""`

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
  cardmint stock import cards.csv --supplier shelf --suppliers suppliers.toml --yes` + jsonHelp(importJSON{})
}

// importJSON is what a file holds, for programs, and whether it was imported.
type importJSON struct {
	Supplier string       `json:"supplier"`
	Imported bool         `json:"imported"`
	Cards    int          `json:"cards"`
	Soon     int          `json:"expire_too_soon"`
	Amounts  []amountJSON `json:"amounts"`
}

type amountJSON struct {
	USDAmount card.USD `json:"usd_amount"`
	Cards     int      `json:"cards"`
}

// Run checks a file, and imports it.
func (c stockImportCommand) Run(ctx context.Context, g *globals) error {
	e, err := c.Suppliers.stock(g, c.Supplier)
	if err != nil {
		return err
	}
	file, err := os.Open(c.File)
	if err != nil {
		return app.WithHint(err, "name a file that can be read")
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return app.WithHint(fmt.Errorf("%s can be read by others than its owner", c.File),
			"take the rights away from others: chmod 600 %s", c.File)
	}
	return g.office(ctx, func(o office) error {
		now := time.Now()
		i := supplier.Import{Shelf: o.db, Vault: o.vault, Supplier: e.Name, Min: e.Min, Max: e.Max, Now: now,
			Soon:     now.Add(e.MinDuration),
			Wrong:    func(line int, why string) { fmt.Fprintf(g.stderr, "line %d: %s\n", line, why) },
			Progress: func(lines int) { fmt.Fprintf(g.stderr, "%d lines\n", lines) }}
		return c.run(ctx, g, i, file)
	})
}

func (c stockImportCommand) run(ctx context.Context, g *globals, i supplier.Import, file *os.File) error {
	fmt.Fprintln(g.stderr, "checking", c.File)
	found, err := i.Check(ctx, file)
	if err != nil {
		return app.WithHint(err, "nothing was imported; cardmint stock import --help says what is in the file")
	}
	if found.Wrong > 0 {
		return app.WithHint(fmt.Errorf("nothing was imported: lines that are wrong: %d", found.Wrong),
			"mend them or take them out, and run it again")
	}
	data := importJSON{Supplier: i.Supplier, Soon: int(found.Soon), Amounts: []amountJSON{}}
	for _, usd := range slices.Sorted(maps.Keys(found.Cards)) {
		data.Amounts = append(data.Amounts, amountJSON{usd, found.Cards[usd]})
		data.Cards += found.Cards[usd]
	}
	if !c.JSON {
		if err := printImport(g, data); err != nil {
			return err
		}
	}
	if !c.Yes {
		return c.write(g, data, func(w io.Writer) {
			fmt.Fprintf(w, "would import %d cards into the stock of %s. Nothing was changed. Run it again with --yes.\n",
				data.Cards, i.Supplier)
		})
	}
	fmt.Fprintln(g.stderr, "importing")
	imported, err := i.Store(ctx, file)
	if errors.Is(err, card.ErrDuplicate) {
		return app.WithHint(errors.New("nothing was imported: another import had one of these cards meanwhile"),
			"run it again without --yes to see which")
	}
	if err != nil {
		return err
	}
	data.Imported, data.Cards = true, int(imported)
	g.audited(ctx, "stock_imported", "", slog.String("supplier", i.Supplier), slog.Int64("cards", int64(imported)))
	return c.write(g, data, func(w io.Writer) {
		fmt.Fprintf(w, "imported %d cards into the stock of %s\n", imported, i.Supplier)
	})
}

// printImport prints what a file holds.
func printImport(g *globals, found importJSON) error {
	err := output{}.write(g, found, func(table io.Writer) {
		fmt.Fprintln(table, "USD\tCARDS")
		for _, a := range found.Amounts {
			fmt.Fprintf(table, "%s\t%d\n", a.USDAmount, a.Cards)
		}
	})
	if err == nil && found.Soon > 0 {
		_, err = fmt.Fprintf(g.stdout, "%d of them expire too soon to be given out\n", found.Soon)
	}
	return err
}
