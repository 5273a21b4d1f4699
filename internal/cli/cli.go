// Package cli is the command line: commands, their output and their help.
// Package app runs the service.
//
// It may import every package. A command stops everything that it started.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/alecthomas/kong"

	"github.com/cardmint/cardmint/internal/app"
)

// globals are the flags of every command.
type globals struct {
	app.Deployment

	LogFormat string `name:"log-format" env:"CARDMINT_LOG_FORMAT" default:"text" enum:"text,json" placeholder:"FORMAT" help:"Format of the log on standard error: text or json (${default})."`
	LogLevel  string `name:"log-level" env:"CARDMINT_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"Lowest level to log: debug, info, warn or error (${default})."`
	Color     string `default:"auto" enum:"auto,always,never" placeholder:"WHEN" help:"Colors: auto (on a terminal, unless NO_COLOR is set), always or never (${default})."`

	stdout, stderr io.Writer
	delayed        *delayedLog // nil if the log starts at once
}

type commands struct {
	globals

	ShowVersion versionFlag `name:"version" help:"Print the version."`

	Dev devCommand `cmd:"" group:"start" help:"Run everything in one process with simulated money."`

	Card struct {
		Create  cardCreateCommand  `cmd:"" group:"api" help:"Order a card."`
		Pay     cardPayCommand     `cmd:"" group:"api" help:"Pay for a card in a sandbox, without money."`
		Watch   cardWatchCommand   `cmd:"" group:"api" help:"Follow a card until it is issued, and print it."`
		List    cardListCommand    `cmd:"" group:"operate" help:"List cards of all accounts."`
		Show    cardShowCommand    `cmd:"" group:"operate" help:"Show everything stored about a card except its credentials."`
		Resolve cardResolveCommand `cmd:"" group:"operate" help:"Decide about a late, insufficient or lost payment, or a card that was not issued."`
		Purge   cardPurgeCommand   `cmd:"" group:"operate" help:"Delete a card's credentials permanently."`
	} `cmd:"" help:"Cards of all accounts."`
	Listen  listenCommand  `cmd:"" group:"api" help:"Print events as they happen, and forward them to a program."`
	Trigger triggerCommand `cmd:"" group:"api" help:"Make an event happen in a sandbox, or send an example of it."`

	Serve   serveCommand   `cmd:"" group:"run" help:"Run the service: the API, the worker, or both."`
	Migrate migrateCommand `cmd:"" group:"run" help:"Bring the database's schema up to date."`
	Backup  backupCommand  `cmd:"" group:"run" help:"Back up the database to a file, even while it is in use."`
	Restore restoreCommand `cmd:"" group:"run" help:"Restore a database from a backup."`

	Account struct {
		Create accountCreateCommand `cmd:"" help:"Create an account."`
	} `cmd:"" group:"operate" help:"The accounts of customers."`
	Token struct {
		Create tokenCreateCommand `cmd:"" help:"Create an API token and print it."`
		List   tokenListCommand   `cmd:"" help:"List the tokens, without their texts."`
		Rotate tokenRotateCommand `cmd:"" help:"Replace a token by a new one; both are valid for a while."`
		Revoke tokenRevokeCommand `cmd:"" help:"Revoke a token."`
		Seal   tokenSealCommand   `cmd:"" help:"Protect the tokens of earlier versions against changes in the database. Needed once."`
	} `cmd:"" group:"operate" help:"API tokens of accounts."`
	Transfers struct {
		List      transfersListCommand      `cmd:"" default:"withargs" help:"List transfers to addresses that belong to no card."`
		Attribute transfersAttributeCommand `cmd:"" help:"Decide about a transfer to an address that belongs to no card."`
	} `cmd:"" group:"operate" help:"Transfers to addresses that belong to no card."`
	Reconcile reconcileCommand `cmd:"" group:"operate" help:"Compare received money with issued cards, and report discrepancies."`
	Rate      struct {
		Show   rateShowCommand   `cmd:"" help:"Ask the sources of live rates."`
		Accept rateAcceptCommand `cmd:"" help:"Accept a rate that moved too far to be used without an operator's approval."`
	} `cmd:"" group:"operate" help:"What coins are worth."`
	Keys struct {
		Create  keysCreateCommand  `cmd:"" help:"Create a key file."`
		Add     keysAddCommand     `cmd:"" help:"Add a new encryption key to the key file."`
		Promote keysPromoteCommand `cmd:"" help:"Encrypt with another key of the key file."`
		Retire  keysRetireCommand  `cmd:"" help:"Remove a key that no row needs."`
		List    keysListCommand    `cmd:"" help:"List the encryption keys, and the rows and processes that use them."`
	} `cmd:"" group:"operate" help:"The keys that credentials are encrypted with."`
	Stock struct {
		Import  stockImportCommand  `cmd:"" help:"Put cards bought in advance in stock."`
		List    stockListCommand    `cmd:"" help:"Print the stock, and mark what runs low."`
		Hold    stockHoldCommand    `cmd:"" help:"Stop issuing the cards that are in stock now."`
		Release stockReleaseCommand `cmd:"" help:"Issue held cards again."`
	} `cmd:"" group:"operate" help:"Cards bought in advance."`
	Wallet struct {
		Check  walletCheckCommand  `cmd:"" help:"Check whether the service can use node and wallet."`
		Rescan walletRescanCommand `cmd:"" help:"Make a wallet rescan its whole chain."`
		Claim  walletClaimCommand  `cmd:"" help:"Assign a wallet that two databases use to one of them."`
	} `cmd:"" group:"operate" help:"The wallets that receive payments."`
	Supplier struct {
		Check  supplierCheckCommand  `cmd:"" help:"Ask every supplier for its offers, without buying anything."`
		Cancel supplierCancelCommand `cmd:"" help:"Cancel a card at its supplier."`
		Serve  supplierServeCommand  `cmd:"" help:"Run a supplier of test cards, for development and tests."`
		Ledger supplierLedgerCommand `cmd:"" help:"Print the requests to such a supplier, and its cards."`
	} `cmd:"" group:"operate" help:"Suppliers, which issue the cards."`

	Completion completionCommand `cmd:"" group:"more" help:"Print a script that completes commands in a shell."`
	Complete   completeCommand   `cmd:"" group:"more" name:"__complete" hidden:"" help:"Print what can come next in a command line."`
	Help       helpCommand       `cmd:"" group:"more" help:"Print the help of a command."`
	Version    versionCommand    `cmd:"" group:"more" help:"Print the version."`
}

// groups are the parts of the help.
var groups = []kong.Group{
	{Key: "start", Title: "Try it:"},
	{Key: "api", Title: "Call the API of a running service, with CARDMINT_URL and CARDMINT_TOKEN:"},
	{Key: "run", Title: "Run the service:"},
	{Key: operate, Title: "Operate the service, on its database and with its key file:"},
	{Key: "more", Title: "More:"},
}

const operate = "operate"

// newCommands returns the commands with the flags of every coin.
func newCommands() *commands {
	c := &commands{}
	c.Serve.CoinFlags, c.Wallet.Check.Coins, c.Reconcile.Coins = newCoinFlags(), newCoinFlags(), newCoinFlags()
	return c
}

// Main runs the command in args and returns the exit code: 0 for success, 1 for
// failure, 2 for wrong arguments, 3 if 'reconcile' found no discrepancy but
// something that waits for an operator. Commands that serve stop when ctx ends.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	disableCoreDumps()
	c := newCommands()
	c.stdout, c.stderr = stdout, stderr
	exit := -1
	parser, err := kong.New(c,
		coinVars(),
		valueParsers(),
		kong.Name("cardmint"),
		kong.Description("cardmint sells prepaid cards for cryptocurrency."),
		kong.ExplicitGroups(groups),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: helpWidth}),
		kong.Help(printHelp),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		fmt.Fprintf(stderr, "cardmint: %v\n", err)
		return 2
	}
	parsed, err := parser.Parse(helpFor(parser.Model.Node, args))
	if exit >= 0 { // help or the version was printed
		return exit
	}
	if err != nil {
		return c.report(2, app.WithHint(err, "run 'cardmint%s --help' for its usage", commandOf(err)))
	}
	return c.run(parsed)
}

// run runs the parsed command and returns the exit code.
func (c *commands) run(parsed *kong.Context) int {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // one of the flag's values
	to, format := c.stderr, c.LogFormat
	if parsed.Command() == "dev" && level > slog.LevelDebug {
		c.delayed = &delayedLog{w: to}
		to = c.delayed
		if format == "text" {
			format = "short"
		}
	}
	c.Log, c.Audit = app.NewLoggers(to, format, level)
	slog.SetDefault(c.Log)
	slog.SetLogLoggerLevel(slog.LevelDebug) // net/http logs there what receivers of webhooks send unasked
	role, _, _ := strings.Cut(parsed.Command(), " ")
	if role == "serve" {
		role = c.Serve.Role
	}
	c.NameSessions(role)
	if err := parsed.Run(&c.globals); err != nil {
		code := 1
		if errors.Is(err, errWaiting) {
			code = codeWaiting
		}
		return c.report(code, app.Explain(err))
	}
	return 0
}

// delayedLog discards the log until it is started.
type delayedLog struct {
	w       io.Writer
	started atomic.Bool
}

// Write implements io.Writer.
func (d *delayedLog) Write(p []byte) (int, error) {
	if !d.started.Load() {
		return len(p), nil
	}
	return d.w.Write(p)
}

// startLog starts a delayed log.
func (g *globals) startLog() {
	if g.delayed != nil {
		g.delayed.started.Store(true)
	}
}

// commandOf returns the command that was recognized before the error in the
// arguments.
func commandOf(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if command, _, _ := strings.Cut(parse.Context.Command(), " <"); command != "" {
			return " " + command
		}
	}
	return ""
}

// report prints an error and its hint, and returns the exit code.
func (g *globals) report(code int, err error) int {
	fmt.Fprintf(g.stderr, "%s %v\n", g.paint(g.stderr, red, "cardmint:"), err)
	if hint := app.Hint(err); hint != "" {
		fmt.Fprintf(g.stderr, "%s %s\n", g.paint(g.stderr, yellow, "hint:"), hint)
	}
	return code
}
