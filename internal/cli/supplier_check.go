package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
)

// supplierCheckTime limits the answer of one supplier.
const supplierCheckTime = 15 * time.Second

type supplierCheckCommand struct {
	output `embed:""`

	File string `name:"suppliers" env:"CARDMINT_SUPPLIERS" required:"" placeholder:"FILE" help:"TOML file with the suppliers of cards."`
}

func (supplierCheckCommand) Help() string {
	return "Reads the file, asks every supplier in it for its offers, and prints them. Nothing is bought. The exit code is 1 if the file is invalid or a supplier can't be used.\n\nExample:\n  cardmint supplier check --suppliers suppliers.toml" + jsonHelp([]supplierJSON{})
}

// supplierJSON is a supplier and its current offers.
type supplierJSON struct {
	Name   string      `json:"name"`
	Kind   string      `json:"kind"`
	MinUSD card.USD    `json:"min_usd"`
	MaxUSD card.USD    `json:"max_usd"`
	Usable bool        `json:"usable"`
	Error  optional    `json:"error"`
	Offers []offerJSON `json:"offers"`
}

// offerJSON is an offer. Left is null if the number of cards is not limited.
type offerJSON struct {
	MinUSD card.USD `json:"min_usd"`
	MaxUSD card.USD `json:"max_usd"`
	Left   *int64   `json:"left"`
}

// Run asks every supplier for its offers.
func (c supplierCheckCommand) Run(ctx context.Context, g *globals) error {
	all, err := app.SupplierConfig{File: c.File}.Read(g.Mode)
	if err != nil {
		return err
	}
	return g.withSupplierOptions(ctx, all, func(opts app.SupplierOptions) error {
		opened, _, err := all.Open(opts)
		if err != nil {
			return err
		}
		failed, texts, found := 0, []string{}, []supplierJSON{}
		for i, e := range all.Entries {
			one := supplierJSON{Name: e.Name, Kind: e.Kind, MinUSD: e.Min, MaxUSD: e.Max, Usable: true, Offers: []offerJSON{}}
			asking, cancel := context.WithTimeout(ctx, supplierCheckTime)
			offers, err := opened[i].Offers(asking)
			cancel()
			text := offersText(offers)
			if err != nil {
				failed++
				one.Usable, one.Error = false, optional(err.Error())
				text = g.paint(g.stdout, red, "FAILS: "+err.Error())
			}
			for _, o := range offers {
				offer := offerJSON{MinUSD: o.Min, MaxUSD: o.Max}
				if o.Left != card.Unlimited {
					offer.Left = &o.Left
				}
				one.Offers = append(one.Offers, offer)
			}
			texts, found = append(texts, text), append(found, one)
		}
		err = c.write(g, found, func(table io.Writer) {
			fmt.Fprintln(table, "NAME\tKIND\tASKED FOR\tCAN BE HAD NOW")
			for i, one := range found {
				fmt.Fprintf(table, "%s\t%s\t%s to %s\t%s\n", one.Name, one.Kind, one.MinUSD, one.MaxUSD, texts[i])
			}
		})
		if err != nil {
			return err
		}
		if failed > 0 {
			return app.WithHint(errors.New("suppliers that can't be used: "+strconv.Itoa(failed)),
				"cards wait for such a supplier, or go to the next one if it declines")
		}
		return nil
	})
}

// withSupplierOptions calls f with the options of suppliers. It opens the
// database only if a supplier has its stock there.
func (g *globals) withSupplierOptions(ctx context.Context, all app.Suppliers, f func(app.SupplierOptions) error) error {
	if !slices.ContainsFunc(all.Entries, func(e app.SupplierEntry) bool { return e.Kind == app.StockKind }) {
		return f(app.SupplierOptions{Mode: g.Mode, Log: g.Log})
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		return f(app.SupplierOptions{Mode: g.Mode, Store: admin.db, Vault: admin.vault, Log: g.Log})
	})
}

// offersText formats offers for people.
func offersText(offers []card.Offer) string {
	if len(offers) == 0 {
		return "nothing"
	}
	texts := make([]string, len(offers))
	for i, o := range offers {
		texts[i] = o.Min.String()
		if o.Max != o.Min {
			texts[i] += " to " + o.Max.String()
		}
		if o.Left != card.Unlimited {
			texts[i] += fmt.Sprintf(" (%d left)", o.Left)
		}
	}
	return strings.Join(texts, ", ")
}
