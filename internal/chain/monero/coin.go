package monero

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/driver"
)

// Coin returns Monero. Its 18.4 million coins, and more every year, do not fit
// an Amount, so it has no Supply. Its payment URI is specified at
// https://docs.getmonero.org/, "Payment request URI".
func Coin() driver.Coin {
	return driver.Coin{
		Currency: card.Currency{Code: "monero", Name: "Monero", Decimals: 12, Confirmations: 10, BlockTime: 2 * time.Minute,
			AmountKey: "tx_amount"},
		Markets:  map[string]string{"bitfinex": "tXMRUSD", "coingecko": "monero", "kraken": "XXMRZUSD"},
		Example:  "--monero-wallet-url http://127.0.0.1:18083",
		Every:    2 * time.Second,
		Settings: func() driver.Settings { return new(settings) },

		CheckAddress: checkAddress,
		CheckTxID:    checkTxID,
	}
}

// settings implements driver.Settings.
type settings struct {
	Flags flags `embed:"" prefix:"monero-" envprefix:"CARDMINT_MONERO_"`
}

// flags locate node and wallet. Logins are read from files, so that no password
// appears in a list of processes.
type flags struct {
	DaemonURL     string        `name:"daemon-url" env:"DAEMON_URL" default:"http://127.0.0.1:18081" placeholder:"URL" help:"monerod's RPC (${default})."`
	DaemonLogin   string        `name:"daemon-login" env:"DAEMON_LOGIN" placeholder:"FILE" help:"A file with USER:PASSWORD for it, if it was started with --rpc-login; readable only by its owner."`
	WalletURL     string        `name:"wallet-url" env:"WALLET_URL" default:"http://127.0.0.1:18083" placeholder:"URL" help:"monero-wallet-rpc with a view-only wallet open (${default})."`
	WalletLogin   string        `name:"wallet-login" env:"WALLET_LOGIN" placeholder:"FILE" help:"A file with USER:PASSWORD for it, if it was started with --rpc-login; readable only by its owner."`
	WalletFile    string        `name:"wallet-file" env:"WALLET_FILE" placeholder:"NAME" help:"The wallet to open, in the --wallet-dir of monero-wallet-rpc, if it has none open."`
	WalletPass    string        `name:"wallet-password" env:"WALLET_PASSWORD" placeholder:"FILE" help:"A file with the password of that wallet; readable only by its owner."`
	MaxTipAge     time.Duration `name:"max-tip-age" env:"MAX_TIP_AGE" default:"30m" placeholder:"DURATION" help:"Do not trust a node whose newest block is older (${default})."`
	Confirmations int           `env:"CONFIRMATIONS" default:"10" placeholder:"N" help:"Confirmations that a payment needs, at most 60 (${default})."`
}

// RequiredConfirmations implements driver.Settings.
func (s *settings) RequiredConfirmations() int { return s.Flags.Confirmations }

// URLs implements driver.Settings.
func (s *settings) URLs() map[string]string {
	return map[string]string{"monero-daemon-url": s.Flags.DaemonURL, "monero-wallet-url": s.Flags.WalletURL}
}

// Open implements driver.Settings.
func (s *settings) Open() (driver.Node, error) {
	f := s.Flags
	config := Config{Coin: Coin().Currency, DaemonURL: f.DaemonURL, WalletURL: f.WalletURL,
		WalletFile: f.WalletFile, MaxTipAge: f.MaxTipAge}
	config.Coin.Confirmations = f.Confirmations
	var err error
	if config.DaemonUser, config.DaemonPassword, err = readLogin(f.DaemonLogin); err != nil {
		return nil, err
	}
	if config.WalletUser, config.WalletPassword, err = readLogin(f.WalletLogin); err != nil {
		return nil, err
	}
	if f.WalletPass != "" {
		text, err := readSecret(f.WalletPass)
		if err != nil {
			return nil, driver.WithHint(fmt.Errorf("read wallet password: %w", err),
				"--monero-wallet-password takes a file with the password in one line, which only its owner may read: chmod 600")
		}
		config.WalletFilePassword = card.Secret(strings.TrimRight(string(text), "\r\n"))
	}
	m, err := New(config)
	if err != nil {
		return nil, driver.WithHint(err, "--monero-daemon-url and --monero-wallet-url take addresses such as http://127.0.0.1:18081")
	}
	return m, nil
}

// readSecret reads a file that only its owner may read.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others than its owner", path)
	}
	return os.ReadFile(path)
}

// readLogin reads a file with USER:PASSWORD in one line. The login is empty if
// path is "".
func readLogin(path string) (user string, password card.Secret, err error) {
	if path == "" {
		return "", "", nil
	}
	const help = "the file must have one line, USER:PASSWORD, as given to --rpc-login, and only its owner may read it: chmod 600"
	text, err := readSecret(path)
	if err != nil {
		return "", "", driver.WithHint(fmt.Errorf("read login: %w", err), help)
	}
	user, secret, ok := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !ok || user == "" || secret == "" {
		return "", "", driver.WithHint(fmt.Errorf("login file %s: not USER:PASSWORD", path), help)
	}
	return user, card.Secret(secret), nil
}

// Check implements driver.Node.
func (m *Chain) Check(ctx context.Context) (driver.Report, error) {
	r, err := m.Inspect(ctx)
	switch {
	case errors.Is(err, ErrSpendKey):
		err = driver.WithHint(driver.Unfit(err),
			"make a view-only wallet of its address and view key, with generate_from_keys, and keep the spend key off this machine")
	case errors.Is(err, card.ErrWrongChain):
		err = driver.WithHint(driver.Unfit(err), "let --monero-daemon-url and --monero-wallet-url point to the same network")
	case errors.Is(err, card.ErrWrongAnswer):
		err = driver.WithHint(err,
			"let --monero-daemon-url and --monero-wallet-url point to monerod and monero-wallet-rpc, of version 0.18 or later, with nothing in between that changes their answers")
	case err != nil:
		err = driver.WithHint(err,
			"start monerod, and monero-wallet-rpc with the view-only wallet open, and check --monero-daemon-url, --monero-wallet-url and the logins")
	case !r.DaemonSynchronized:
		err = driver.WithHint(errors.New("the node is not synchronized"), "wait until monerod has caught up with the network")
	}
	return r.rows(), err
}

func (r Report) rows() driver.Report {
	if r.Network == "" {
		return nil
	}
	yesNo := map[bool]string{true: "yes", false: "no"}
	rows := driver.Report{
		{"network", r.Network},
		{"node", fmt.Sprintf("version %s, block %d of %s, synchronized: %s", r.DaemonVersion, r.DaemonHeight,
			r.DaemonTime.UTC().Format(time.RFC3339), yesNo[r.DaemonSynchronized])},
	}
	if r.PrimaryAddress != "" {
		rows = append(rows, driver.Report{
			{"wallet", fmt.Sprintf("%s, block %d, view-only: %s", r.WalletVersion, r.WalletHeight, yesNo[r.ViewOnly])},
			{"address", r.PrimaryAddress},
			{"subaddresses", fmt.Sprint(r.Subaddresses)},
		}...)
	}
	for _, w := range r.Warnings {
		rows = append(rows, driver.Report{{driver.Warning, w}}...)
	}
	return rows
}
