package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/driver"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

type walletCheckCommand struct {
	output `embed:""`

	WalletOnly bool      `help:"Check node and wallet alone, without comparing them with the database."`
	Coins      coinFlags `embed:""`
}

func (walletCheckCommand) Help() string {
	return `Checks node and wallet, and compares them with the database: the chain, the wallet's primary address, the newest stored address, and the epoch must match. Nothing is changed, and the service may be running.

The exit code is 0 only if the service can use them with this database. --wallet-only leaves the database out, for a machine that has none.

Examples:
  cardmint wallet check
  cardmint wallet check ` + chain.Coins()[0].Example + jsonHelp([]walletJSON{})
}

// walletJSON is the report of a coin's node and wallet.
type walletJSON struct {
	Currency string    `json:"currency"`
	Usable   bool      `json:"usable"`
	Compared bool      `json:"compared"`
	Error    optional  `json:"error"`
	Report   []rowJSON `json:"report"`
}

type rowJSON struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Run checks nodes and wallets, and compares them with the database.
func (c walletCheckCommand) Run(ctx context.Context, g *globals) error {
	coins, err := c.Coins.enabled()
	if err != nil {
		return err
	}
	var db *store.Store
	var missing error
	if !c.WalletOnly {
		if db, missing = g.OpenStore(ctx, 1); missing == nil {
			defer func() { _ = db.Close() }()
		}
	}
	var failed error
	all := []walletJSON{}
	for _, coin := range coins {
		one, err := checkWallet(ctx, g, coin, db, missing)
		failed = cmp.Or(failed, err)
		one.Usable = err == nil
		if err != nil {
			one.Error = optional(err.Error())
		}
		all = append(all, one)
	}
	err = c.write(g, all, func(table io.Writer) {
		for _, one := range all {
			for _, row := range one.Report {
				text := row.Text
				if row.Name == driver.Warning {
					text = g.paint(g.stdout, yellow, text)
				}
				fmt.Fprintf(table, "%s\t%s\n", row.Name, text)
			}
		}
	})
	return cmp.Or(err, failed)
}

// checkWallet checks the node and the wallet of a coin, and compares them with
// db. If db is nil, missing is the error of opening it, or nil to check only
// the wallet.
func checkWallet(ctx context.Context, g *globals, coin app.Coin, db *store.Store, missing error) (walletJSON, error) {
	one := walletJSON{Currency: coin.Code, Report: []rowJSON{}}
	n, err := coin.Settings.Open()
	if err != nil {
		return one, err
	}
	defer n.Close()
	fmt.Fprintln(g.stderr, "asking node and wallet of", coin.Code, "...")
	report, err := n.Check(ctx)
	for _, row := range report {
		one.Report = append(one.Report, rowJSON(row))
	}
	note := func(format string, args ...any) {
		one.Report = append(one.Report, rowJSON{"database", fmt.Sprintf(format, args...)})
	}
	switch {
	case err != nil:
		if len(report) > 0 {
			note("not compared")
		}
		return one, err
	case missing != nil:
		note("not compared")
		return one, app.WithHint(fmt.Errorf("node and wallet were not compared with a database: %w", missing),
			"run it with the service's --database-url, after 'cardmint migrate'; or with --wallet-only on a machine without the database")
	case db == nil:
		note("not compared, because of --wallet-only")
		return one, nil
	}
	c, err := settle.CompareWallet(ctx, n, db, coin.Currency)
	one.Compared = c.Fingerprint != "" && (err == nil || isMismatch(err))
	switch {
	case err != nil:
		note("does not fit")
	case c.IsNew() && c.Beacon.Epoch > 0:
		note("has no wallet of %s yet; another database has used this one, with addresses up to %d", coin.Code,
			c.Beacon.Position)
	case c.IsNew():
		note("has no wallet of %s yet", coin.Code)
	default:
		note("the same wallet and network, block %d, addresses up to %d, epoch %d", c.Cursor.Tip.Height, c.Cursor.Newest,
			c.Pool.LastEpoch)
	}
	return one, explainMismatch(err, coin, c)
}

func isMismatch(err error) bool {
	return errors.Is(err, card.ErrWrongChain) || errors.Is(err, card.ErrWalletLost) ||
		errors.Is(err, card.ErrWalletShared) ||
		errors.Is(err, settle.ErrDatabaseBehind)
}

// explainMismatch adds the next step to an error of CompareWallet.
func explainMismatch(err error, coin app.Coin, c settle.Comparison) error {
	const docs = "docs/operate/"
	switch {
	case errors.Is(err, card.ErrWrongChain) && isSimulated(c.Cursor):
		return app.WithHint(err,
			"this database was used with --simulated: let --database-url name a new database, and run 'cardmint migrate'")
	case errors.Is(err, card.ErrWrongChain):
		return app.WithHint(err,
			"a database belongs to its wallet permanently: point %s to that wallet, or --database-url to the database of this one",
			strings.Join(urlFlags(coin.Settings), " and "))
	case errors.Is(err, card.ErrWalletLost):
		return app.WithHint(err,
			"a worker that runs makes the addresses again; to wait for it, run: %s; see %swallet-lost.md",
			command("wallet", "rescan", coin.Code), docs)
	case errors.Is(err, card.ErrWalletShared):
		return app.WithHint(err, "stop the other service, then run: %s; see %ssplit-brain.md",
			command("wallet", "claim", coin.Code),
			docs)
	case errors.Is(err, settle.ErrDatabaseBehind):
		return app.WithHint(err,
			"if this database was restored, start its worker, which begins a new epoch, and check again; otherwise another database uses the wallet: see %ssplit-brain.md", docs)
	}
	return app.Explain(err)
}

// isSimulated reports whether the database was used with a simulated chain.
func isSimulated(cursor settle.Cursor) bool {
	return strings.HasPrefix(cursor.Fingerprint, "simulated ")
}

// urlFlags returns the flags with the addresses of node and wallet.
func urlFlags(s driver.Settings) []string {
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(s.URLs())) {
		flags = append(flags, "--"+name)
	}
	return flags
}

type walletRescanCommand struct {
	Currency string        `arg:"" optional:"" default:"${default_coin}" help:"Currency of the wallet (${default})."`
	Believe  bool          `help:"Trust the wallet: no longer count what it does not show afterwards, and count what it shows otherwise, though the block is still in the chain. For money that never came."`
	Wait     time.Duration `default:"24h" placeholder:"DURATION" help:"How long to wait for the end; 0 not to wait (${default})."`
}

func (walletRescanCommand) Help() string {
	return `For a wallet that lost data or could not follow a deep reorganization. The worker that watches the chain runs it in its next pass: the wallet creates its addresses again and scans the whole chain, and the worker compares every transfer with the stored ones. It can be interrupted. New payments are detected when it is done. A worker starts a rescan automatically when it detects that its wallet lost data. If the wallet still lacks a transfer whose block is in the chain, or shows another amount, the worker does not trust it and credits nothing of that coin: restore the wallet from an earlier height, or use --believe.

Examples:
  cardmint wallet rescan
  cardmint wallet rescan ` + chain.Coins()[0].Code + ` --wait 0`
}

// Run asks for a rescan and waits until it is done.
func (c walletRescanCommand) Run(ctx context.Context, g *globals) error {
	coin, known := chain.ByCode(c.Currency)
	if !known {
		return app.WithHint(fmt.Errorf("%q is not the code of a currency", c.Currency), "it is one of: %s",
			coinVars()["coins"])
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		err := admin.db.AskForRescan(ctx, c.Currency, c.Believe)
		if errors.Is(err, card.ErrNoRow) {
			return app.WithHint(fmt.Errorf("%q has no wallet yet", c.Currency), "start a worker first: cardmint serve")
		}
		if err != nil {
			return err
		}
		g.audited(ctx, "wallet_rescan_requested", "", slog.String("currency", c.Currency), slog.Bool("believe", c.Believe))
		fmt.Fprintln(g.stderr, "requested; a worker does it at its next pass")
		waiting, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		every := time.NewTicker(time.Second)
		defer every.Stop()
		said := settle.Asked
		for c.Wait > 0 {
			cursor, err := admin.db.Cursor(ctx, coin.Currency)
			if err != nil {
				return err
			}
			if cursor.Rescan == "" {
				fmt.Fprintf(g.stdout, "done; applied up to block %d\n", cursor.Tip.Height)
				return nil
			}
			if cursor.Rescan != said {
				said = cursor.Rescan
				fmt.Fprintln(g.stderr, said)
			}
			select {
			case <-every.C:
			case <-waiting.Done():
				return app.WithHint(errors.New("it is not done yet"),
					"a worker must run ('cardmint serve'); its log shows the progress")
			}
		}
		return nil
	})
}

type walletClaimCommand struct {
	Currency string `arg:"" optional:"" default:"${default_coin}" help:"Currency of the wallet (${default})."`
	Yes      bool   `help:"Do it. Without it, the command only prints its plan."`
}

func (walletClaimCommand) Help() string {
	return `Two databases must not use one wallet: a payment would be credited in both. It happens when a copy of a database is in use beside it, for example an old primary that still runs after a standby was promoted. Both notice within two passes, hand out no more addresses and issue no more cards. Stop the one that shall end, then claim the wallet for the other: run this command with its --database-url. A worker of that database begins a new epoch at its next pass; the addresses made before stay watched, and are not handed out any more.

Examples:
  cardmint wallet claim
  cardmint wallet claim ` + chain.Coins()[0].Code + ` --yes`
}

// Run gives the wallet to this database.
func (c walletClaimCommand) Run(ctx context.Context, g *globals) error {
	coin, known := chain.ByCode(c.Currency)
	if !known {
		return app.WithHint(fmt.Errorf("%q is not the code of a currency", c.Currency), "it is one of: %s",
			coinVars()["coins"])
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		if c.Yes {
			return claimWallet(ctx, g, admin, coin)
		}
		cursor, err := admin.db.Cursor(ctx, coin.Currency)
		if err != nil {
			return err
		}
		if cursor.Conflict == "" {
			fmt.Fprintf(g.stdout,
				"no conflict is known: this database uses the wallet of %s alone, and nothing is to be claimed\n", coin.Code)
			return nil
		}
		fmt.Fprintf(g.stdout,
			"nothing is sold or issued: %s\nNothing was changed. Stop the other one. Then give the wallet to this database:\n  %s\n", cursor.Conflict,
			command("wallet", "claim", coin.Code, "--yes"))
		return nil
	})
}

func claimWallet(ctx context.Context, g *globals, admin adminContext, coin driver.Coin) error {
	err := admin.db.ClaimWallet(ctx, coin.Code)
	if errors.Is(err, card.ErrNoRow) {
		return app.WithHint(fmt.Errorf("%q has no wallet yet", coin.Code), "start a worker first: cardmint serve")
	}
	if err != nil {
		return err
	}
	g.audited(ctx, "wallet_claimed", "", slog.String("currency", coin.Code))
	fmt.Fprintln(g.stdout, "claimed; a worker begins a new epoch at its next pass")
	return nil
}
