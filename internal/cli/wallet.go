package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
)

// moneroEvery is how often node and wallet are asked.
const moneroEvery = 2 * time.Second

// moneroFlags say where node and wallet are. Logins are in files, so that no password stands in a list of processes.
type moneroFlags struct {
	DaemonURL     string        `name:"daemon-url" env:"DAEMON_URL" default:"http://127.0.0.1:18081" placeholder:"URL" help:"monerod's RPC (${default})."`
	DaemonLogin   string        `name:"daemon-login" env:"DAEMON_LOGIN" placeholder:"FILE" help:"A file with USER:PASSWORD for it, if it was started with --rpc-login."`
	WalletURL     string        `name:"wallet-url" env:"WALLET_URL" default:"http://127.0.0.1:18083" placeholder:"URL" help:"monero-wallet-rpc with a view-only wallet open (${default})."`
	WalletLogin   string        `name:"wallet-login" env:"WALLET_LOGIN" placeholder:"FILE" help:"A file with USER:PASSWORD for it, if it was started with --rpc-login."`
	WalletFile    string        `name:"wallet-file" env:"WALLET_FILE" placeholder:"NAME" help:"The wallet to open, in the --wallet-dir of monero-wallet-rpc, if it has none open."`
	WalletPass    string        `name:"wallet-password" env:"WALLET_PASSWORD" placeholder:"FILE" help:"A file with the password of that wallet."`
	MaxTipAge     time.Duration `name:"max-tip-age" env:"MAX_TIP_AGE" default:"30m" placeholder:"DURATION" help:"A node whose newest block is older is not believed (${default})."`
	Confirmations int           `env:"CONFIRMATIONS" default:"10" placeholder:"N" help:"Confirmations that a payment needs (${default})."`
}

func (f moneroFlags) open() (*chain.Monero, error) {
	config := chain.MoneroConfig{DaemonURL: f.DaemonURL, WalletURL: f.WalletURL, WalletFile: f.WalletFile, MaxTipAge: f.MaxTipAge}
	var err error
	if config.DaemonUser, config.DaemonPassword, err = readLogin(f.DaemonLogin); err != nil {
		return nil, err
	}
	if config.WalletUser, config.WalletPassword, err = readLogin(f.WalletLogin); err != nil {
		return nil, err
	}
	if f.WalletPass != "" {
		text, err := os.ReadFile(f.WalletPass)
		if err != nil {
			return nil, hint(fmt.Errorf("read password of wallet: %w", err), "--monero-wallet-password takes a file that holds it in one line")
		}
		config.WalletFilePassword = card.Secret(strings.TrimRight(string(text), "\r\n"))
	}
	m, err := chain.NewMonero(config)
	return m, hint(err, "--monero-daemon-url and --monero-wallet-url take addresses such as http://127.0.0.1:18081")
}

// readLogin reads a file that holds user:password in one line; no file is no login.
func readLogin(path string) (user string, password card.Secret, err error) {
	if path == "" {
		return "", "", nil
	}
	const help = "the file holds one line, USER:PASSWORD, as it was given to --rpc-login"
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", hint(fmt.Errorf("read login: %w", err), help)
	}
	user, secret, ok := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !ok || user == "" || secret == "" {
		return "", "", hint(fmt.Errorf("login file %s: not USER:PASSWORD", path), help)
	}
	return user, card.Secret(secret), nil
}

// start refuses a wallet that is not fit. One that does not answer yet is waited for: the watcher tries again and again, and
// readiness says so.
func (f moneroFlags) start(ctx context.Context, log *slog.Logger) (*chain.Monero, error) {
	m, err := f.open()
	if err != nil {
		return nil, err
	}
	_, err = m.Check(ctx)
	switch {
	case errors.Is(err, chain.ErrSpendKey), errors.Is(err, card.ErrWrongChain):
		return nil, explainWallet(err)
	case err != nil:
		log.Warn("node or wallet does not answer yet", "error", err)
	}
	return m, nil
}

func explainWallet(err error) error {
	switch {
	case errors.Is(err, chain.ErrSpendKey):
		return hint(err, "make a view-only wallet of its address and view key, with generate_from_keys, and keep the spend key off this machine")
	case errors.Is(err, card.ErrWrongChain):
		return hint(err, "let --monero-daemon-url and --monero-wallet-url point to the same network")
	}
	return hint(err, "start monerod, and monero-wallet-rpc with the view-only wallet open, and check --monero-daemon-url, --monero-wallet-url and the logins")
}

type walletCheckCommand struct {
	Monero moneroFlags `embed:"" prefix:"monero-" envprefix:"CARDMINT_MONERO_"`
}

func (walletCheckCommand) Help() string {
	return "Exits with 0 only if the service could work with them.\n\nExample:\n  cardmint wallet check --monero-daemon-url http://127.0.0.1:18081 --monero-wallet-url http://127.0.0.1:18083"
}

// Run prints what node and wallet say of themselves.
func (c walletCheckCommand) Run(ctx context.Context, g *globals) error {
	m, err := c.Monero.open()
	if err != nil {
		return err
	}
	defer m.Close()
	fmt.Fprintln(g.stderr, "asking node and wallet ...")
	r, err := m.Check(ctx)
	if r.Network != "" {
		table := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(table, "network\t%s\n", r.Network)
		fmt.Fprintf(table, "node\tversion %s, block %d of %s, synchronised: %s\n", r.DaemonVersion, r.DaemonHeight, day(&r.DaemonTime), yesNo(r.DaemonSynchronized))
		if r.PrimaryAddress != "" {
			fmt.Fprintf(table, "wallet\t%s, block %d, view-only: %s\n", r.WalletVersion, r.WalletHeight, yesNo(r.ViewOnly))
			fmt.Fprintf(table, "address\t%s\n", r.PrimaryAddress)
			fmt.Fprintf(table, "subaddresses\t%d\n", r.Subaddresses)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if err != nil {
		return explainWallet(err)
	}
	if !r.DaemonSynchronized {
		return hint(errors.New("the node is not synchronised"), "wait until monerod has caught up with the network")
	}
	return nil
}

type walletRescanCommand struct {
	Currency string        `arg:"" optional:"" default:"monero" help:"Whose wallet (${default})."`
	Believe  bool          `help:"Un-count what the wallet then no longer shows, though its block is still in the chain: for money that never came."`
	Wait     time.Duration `default:"24h" placeholder:"DURATION" help:"How long to wait for it; 0 to leave it to the worker (${default})."`
}

func (walletRescanCommand) Help() string {
	return `For a wallet that lost what it knew, or could not follow a deep reorganisation. The worker that watches the chain does it, at its next pass: it has the wallet make its addresses again, look through the whole chain, and compares every transfer with what is stored. Nothing is lost if this is interrupted; new payments are seen when it is done. A worker that notices by itself that its wallet lost something starts this without being asked. If the wallet still lacks a transfer whose block is in the chain, it is not believed, and nothing of that coin is credited until it is mended: restore it from an earlier height, or use --believe.

Examples:
  cardmint wallet rescan
  cardmint wallet rescan monero --wait 0`
}

// Run asks for a rescan and waits until it is done.
func (c walletRescanCommand) Run(ctx context.Context, g *globals) error {
	if _, known := card.CurrencyByCode(c.Currency); !known {
		return hint(fmt.Errorf("%q is not the code of a currency", c.Currency), "for example: cardmint wallet rescan monero")
	}
	return g.office(ctx, func(o office) error {
		err := o.db.RequestRescan(ctx, c.Currency, "an operator asked for it", c.Believe)
		if errors.Is(err, card.ErrNotFound) {
			return hint(fmt.Errorf("%q has no wallet yet", c.Currency), "start a worker first: cardmint serve")
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(g.stderr, "asked for; a worker does it at its next pass")
		waiting, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		every := time.NewTicker(time.Second)
		defer every.Stop()
		said := "an operator asked for it"
		for c.Wait > 0 {
			cursor, err := o.db.Cursor(ctx, c.Currency)
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
				return hint(errors.New("it is not done yet"), "a worker must run ('cardmint serve'); what it does stands in its log")
			}
		}
		return nil
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
