package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rate"
)

type rateAcceptCommand struct {
	Coin     string `arg:"" optional:"" default:"${default_coin}" help:"Code of the currency (${default})."`
	USD      string `name:"usd" placeholder:"USD" help:"The rate to accept, which the command prints without --yes."`
	Note     string `required:"" placeholder:"TEXT" help:"The reason. It is stored."`
	Operator string `placeholder:"NAME" help:"Who decided. Without it, the user of this machine."`
	Yes      bool   `help:"Do it. Without it, the command only prints its plan."`
}

func (rateAcceptCommand) Help() string {
	return `If all sources agree on a rate that is too far from those of the last hour (--rate-max-move of 'serve'), the market may have moved, or all sources may be wrong. Until the rate returns or you accept it, no card is sold for that coin, which /readyz, the log and 'rate show' report. Check the market elsewhere first.

Without --yes the command prints its plan and changes nothing. With --yes, --usd must be the printed rate; if the sources now differ from it by more than 3 percent, nothing is done. Within seconds every process sells at the rate of its sources, if that is near the accepted rate. The operator, time, rate and note are stored.

Examples:
  cardmint rate accept --note "matches the market"
  cardmint rate accept ` + chain.Coins()[0].Code + ` --note "matches the market" --usd 215.4 --yes`
}

// Run accepts a rate. Without --yes it only prints its plan.
func (c rateAcceptCommand) Run(ctx context.Context, g *globals) (err error) {
	if c.Operator, err = operatorName(c.Note, c.Operator); err != nil {
		return err
	}
	if _, known := chain.Markets()[c.Coin]; !known {
		return app.WithHint(fmt.Errorf("%q is not the code of a currency", c.Coin), "it is one of: %s", coinVars()["coins"])
	}
	if c.Yes && c.USD == "" {
		return app.WithHint(errors.New("--yes needs --usd"), "run the command without --yes first: it prints the rate")
	}
	var usd card.Decimal
	if c.USD != "" {
		if usd, err = card.ParseDecimal(c.USD, card.RateScale); err != nil {
			return app.WithHint(fmt.Errorf("--usd: %q %w", c.USD, err),
				"it takes US dollars for one coin, as printed without --yes")
		}
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		var stored storedRates
		if stored.accepted, err = admin.db.AcceptedRates(ctx, []string{c.Coin}, time.Hour); err != nil {
			return err
		}
		if stored.parked, err = admin.db.ParkedRates(ctx); err != nil {
			return err
		}
		return c.decide(ctx, g, admin, stored, usd)
	})
}

// decide accepts usd if it is a parked rate.
func (c rateAcceptCommand) decide(ctx context.Context, g *globals, admin adminContext, stored storedRates,
	usd card.Decimal) error {
	last, _ := stored.last(c.Coin)
	waiting := stored.waiting(c.Coin)
	chosen, still := rate.Acceptable(waiting, usd)
	switch {
	case c.USD != "" && last.Note != "" && last.USD == usd:
		fmt.Fprintf(g.stdout, "nothing left to do: %s accepted %s USD for %s %s\n", oneLine(last.By), usd, c.Coin,
			formatTime(&last.At))
		return nil
	case len(waiting) == 0:
		return app.WithHint(fmt.Errorf("no rate of %s waits for an operator", c.Coin),
			"only processes that serve can tell: one reports it when its sources have said the same a few times; see: cardmint rate show %s", c.Coin)
	case c.USD == "":
		for _, p := range waiting {
			fmt.Fprintf(g.stdout, "%s USD for %s, since %s, at %s: %s\n", p.USD, c.Coin, formatTime(&p.Since), oneLine(p.By),
				p.Why)
		}
		fmt.Fprintf(g.stdout, "would accept %s USD for %s. Nothing was changed. To do it, add: --usd %[1]s --yes\n",
			waiting[0].USD, c.Coin)
		return nil
	case !still:
		said := make([]string, len(waiting))
		for i, p := range waiting {
			said[i] = p.USD.String()
		}
		slices.Sort(said)
		return app.WithHint(
			fmt.Errorf("the sources do not say %s USD for %s, but %s", usd, c.Coin, strings.Join(slices.Compact(said), " or ")),
			"the market has moved on, or it is another rate: run the command without --yes again")
	case !c.Yes:
		fmt.Fprintf(g.stdout, "would accept %s USD for %s. Nothing was changed. To do it, add: --yes\n", usd, c.Coin)
		return nil
	}
	err := admin.db.InsertAcceptedRates(ctx,
		[]card.AcceptedRate{{ID: uuid.Must(uuid.NewV7()), Currency: c.Coin, USD: usd, Source: chosen.Source, At: time.Now(),
			By: c.Operator, Note: c.Note}}, time.Hour)
	if err == nil {
		g.audited(ctx, "rate_accepted", c.Operator, slog.String("currency", c.Coin), about("usd", usd))
		fmt.Fprintf(g.stdout, "recorded: %s accepts %s USD for %s; within seconds every process knows\n",
			oneLine(c.Operator), usd, c.Coin)
	}
	return err
}
