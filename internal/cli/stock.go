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

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
)

// stockFlags names the file of suppliers.
type stockFlags struct {
	File string `name:"suppliers" env:"CARDMINT_SUPPLIERS" required:"" placeholder:"FILE" help:"TOML file with the suppliers of cards."`
}

// stocks returns the suppliers of kind stock, by name.
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

// stock returns the entry of a supplier of kind stock.
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
	Yes      bool   `help:"Import it. Without it, the command only prints its plan."`

	Suppliers stockFlags `embed:""`
}

func (stockImportCommand) Help() string {
	return `Every line is checked first, and every bad one is named by its number; then all are imported, or none. A card that is in the file twice, that is in stock, or that was ever issued is refused. What is imported is encrypted. Delete the file afterwards.

The exit code is 1 if nothing was imported because of a mistake.

Examples:
  cardmint stock import cards.csv --supplier shelf --suppliers suppliers.toml
  cardmint stock import cards.csv --supplier shelf \
    --suppliers suppliers.toml --yes` + jsonHelp(importJSON{})
}

// importJSON is the content of a file, and whether it was imported.
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

// Run checks a file. With --yes it imports it.
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
	return g.withAdmin(ctx, func(admin adminContext) error {
		now := time.Now()
		i := supplier.Import{Shelf: admin.db, Vault: admin.vault, Supplier: e.Name, Min: e.Min, Max: e.Max, Now: now,
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
		return app.WithHint(err, "nothing was imported; cardmint stock import --help describes the file")
	}
	if found.Wrong > 0 {
		return app.WithHint(fmt.Errorf("nothing was imported: lines that are wrong: %d", found.Wrong),
			"fix or remove them, and run it again")
	}
	data := importJSON{Supplier: i.Supplier, Soon: found.Soon, Amounts: []amountJSON{}}
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
	data.Imported, data.Cards = true, imported
	g.audited(ctx, "stock_imported", "", slog.String("supplier", i.Supplier), slog.Int64("cards", int64(imported)))
	return c.write(g, data, func(w io.Writer) {
		fmt.Fprintf(w, "imported %d cards into the stock of %s\n", imported, i.Supplier)
	})
}

// printImport prints the content of a file.
func printImport(g *globals, found importJSON) error {
	err := output{}.write(g, found, func(table io.Writer) {
		fmt.Fprintln(table, "USD\tCARDS")
		for _, a := range found.Amounts {
			fmt.Fprintf(table, "%s\t%d\n", a.USDAmount, a.Cards)
		}
	})
	if err == nil && found.Soon > 0 {
		_, err = fmt.Fprintf(g.stdout, "%d of them expire too soon to be issued\n", found.Soon)
	}
	return err
}

type stockListCommand struct {
	output `embed:""`

	Low       int64      `placeholder:"N" default:"-1" help:"Mark amounts with fewer than N free cards (low_stock of the supplier)."`
	Held      bool       `help:"Name every item that is held too, as 'stock release --except' takes it."`
	Suppliers stockFlags `embed:""`
}

func (stockListCommand) Help() string {
	return `FREE can be sold. SOON is free, but expires too soon to be issued; EXPIRED has expired. HELD waits for "cardmint stock release", because the database went back in time. Below the table are the items that never reached their card: the card was parked, its refund is due, or another supplier issued it. The exit code is 1 if an amount is low.

Examples:
  cardmint stock list --suppliers suppliers.toml
  cardmint stock list --suppliers suppliers.toml --held
  cardmint stock list --suppliers suppliers.toml --low 20` + jsonHelp(stockJSON{})
}

// stockLine is the stock of one supplier and amount.
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
	Known     bool     `json:"in_file"` // the file of suppliers contains the supplier
}

// stockJSON is the stock in JSON.
type stockJSON struct {
	Amounts       []stockLine `json:"amounts"`
	NeverReceived []itemJSON  `json:"never_received"`
	Held          []itemJSON  `json:"held_items"`
}

// Run prints the stock.
func (c stockListCommand) Run(ctx context.Context, g *globals) error {
	stocks, err := c.Suppliers.stocks(g)
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		counts, err := admin.db.StockCounts(ctx)
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
		if data.NeverReceived, data.Held, err = admin.doubtfulStock(ctx, ""); err != nil {
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
			return app.WithHint(fmt.Errorf("amounts that run low: %d", low),
				"import cards with: cardmint stock import")
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

// itemJSON is an item that an operator must examine. Only the last four digits
// of its number are shown.
type itemJSON struct {
	Item      uuid.UUID  `json:"item"`
	Supplier  string     `json:"supplier"`
	USDAmount card.USD   `json:"usd_amount"`
	ExpiresAt instant    `json:"expires_at"`
	Number    optional   `json:"number"`
	Card      *uuid.UUID `json:"card"`
}

// doubtfulStock returns the items that were issued but never reached their
// card, and the held items. If supplier is "", it returns those of all
// suppliers.
func (admin adminContext) doubtfulStock(ctx context.Context, supplier string) (never, held []itemJSON, err error) {
	found, err := admin.db.DoubtfulStock(ctx)
	never, held = []itemJSON{}, []itemJSON{}
	for _, item := range found {
		if supplier != "" && item.Supplier != supplier {
			continue
		}
		one := itemJSON{Item: item.ID, Supplier: item.Supplier, USDAmount: item.USD, ExpiresAt: instant{item.ExpiresAt}}
		if item.Sealed != nil {
			shown, err := admin.vault.MaskCredentials(item.ID, uuid.Nil, *item.Sealed)
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
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", item.Item, item.Supplier, item.USDAmount,
			formatTime(&item.ExpiresAt.Time),
			orDash(string(item.Number)), of)
	}
}

type stockHoldCommand struct {
	output `embed:""`

	Supplier  string     `required:"" placeholder:"NAME" help:"The supplier whose stock it is."`
	Suppliers stockFlags `embed:""`
}

func (stockHoldCommand) Help() string {
	return `No item that is in stock now is sold or issued until "cardmint stock release". The service holds the stock automatically when it detects that the database went back in time. It can't detect this if database and wallet were restored together, for example by a snapshot of the machine: then run this command before you start the service. It also lists the items that never reached their card, which are not sold again automatically.

Example:
  cardmint stock hold --supplier shelf --suppliers suppliers.toml` + jsonHelp(holdJSON{})
}

// holdJSON is the result or the plan of holding or releasing items.
type holdJSON struct {
	Supplier      string     `json:"supplier"`
	Changed       int64      `json:"changed"`
	Held          []itemJSON `json:"held_items"`
	NeverReceived []itemJSON `json:"never_received"`
}

// readHeld reads the number of held items.
func (j *holdJSON) readHeld(ctx context.Context, admin adminContext) (err error) {
	j.NeverReceived, j.Held, err = admin.doubtfulStock(ctx, j.Supplier)
	return err
}

// Run holds the items in stock.
func (c stockHoldCommand) Run(ctx context.Context, g *globals) error {
	e, err := c.Suppliers.stock(g, c.Supplier)
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		data := holdJSON{Supplier: e.Name}
		var err error
		if data.Changed, err = admin.db.HoldStock(ctx, e.Name); err != nil {
			return err
		}
		g.audited(ctx, "stock_held", "", slog.String("supplier", e.Name), slog.Int64("cards", data.Changed))
		if err := data.readHeld(ctx, admin); err != nil {
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
	Except   []uuid.UUID `placeholder:"ITEM,..." help:"Items that stay held, because they were issued. May be repeated."`
	Yes      bool        `help:"Release it. Without it, the command only prints its plan."`

	Suppliers stockFlags `embed:""`
}

func (stockReleaseCommand) Help() string {
	return `When a database has gone back in time, by a restored backup for example, cards that are free in it may have been given out since. So nothing is given out that was in stock then, until an operator releases it. First find out from your records, or from the supplier, that no card was given out in the time that was lost. Without --yes, the command names every item that is held, with the end of its card number: leave those out by --except that were. They stay held. What is imported later is not held.

Examples:
  cardmint stock release --supplier shelf --suppliers suppliers.toml
  cardmint stock release --supplier shelf --suppliers suppliers.toml \
    --except 019aa1c9-f868-7cef-8e4e-9b1c97fb1d88 --yes` + jsonHelp(holdJSON{})
}

// Run releases the held items.
func (c stockReleaseCommand) Run(ctx context.Context, g *globals) error {
	e, err := c.Suppliers.stock(g, c.Supplier)
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		data := holdJSON{Supplier: e.Name}
		if err := data.readHeld(ctx, admin); err != nil {
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
					"would release %d cards. Nothing was changed. If none of them was issued, run it again with --yes.\n",
					len(released))
				printItems(w, "HELD", data.Held)
			})
		}
		var err error
		if data.Changed, err = admin.db.ReleaseStock(ctx, e.Name, c.Except); err != nil {
			return err
		}
		g.audited(ctx, "stock_released", "", slog.String("supplier", e.Name), slog.Int64("cards", data.Changed))
		if err := data.readHeld(ctx, admin); err != nil {
			return err
		}
		return c.write(g, data, func(w io.Writer) {
			fmt.Fprintf(w, "released %d cards\n", data.Changed)
			printItems(w, "HELD", data.Held)
		})
	})
}
