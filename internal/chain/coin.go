package chain

import (
	"context"
	"errors"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// Coin is everything that the rest of the program knows about a coin.
type Coin struct {
	card.Currency
	// Markets maps a rate source's name to its name for the coin's market
	// against US dollars.
	Markets map[string]string
	// Example shows the coin's flags in help texts.
	Example string
	// CheckAddress returns an error unless the coin can be sent to an address,
	// on the network that ours is for: an address of the wallet, or "" if none
	// is known. The error continues a sentence that begins with the name of the
	// field, and does not quote the address.
	CheckAddress func(address, ours string) error
	// CheckTxID returns an error unless a text can be the id of a transaction.
	// The error is of the same kind.
	CheckTxID func(txid string) error
	// Every is the time between two passes over the chain.
	Every time.Duration
	// Settings returns what an operator sets for the coin: a pointer to a
	// struct whose fields are flags, by kong's tags. It is nil for a coin that
	// has rates but whose payments can't be watched yet.
	Settings func() Settings
}

// Settings are what an operator sets for a coin.
type Settings interface {
	// RequiredConfirmations is how many confirmations a payment needs.
	RequiredConfirmations() int
	// URLs returns the addresses of other programs, by the name of their flag.
	URLs() map[string]string
	// Open returns the coin's chain. It makes no calls yet. Its error may have
	// a hint.
	Open() (Node, error)
}

// Node is a chain that is read from a node and a wallet.
type Node interface {
	settle.Chain
	// Check tells whether node and wallet are fit for use. The error is
	// ErrUnfit if waiting won't help; any other may pass. It may have a hint.
	// The report has whatever was found before the error.
	Check(ctx context.Context) (Report, error)
	// Identify returns the fingerprint that Scan returns in its view.
	Identify(ctx context.Context) (string, error)
	// Balance returns the wallet's balance, without what is in the mempool. A
	// wallet that can't spend does not know what was sent from its addresses.
	Balance(ctx context.Context) (card.Total, error)
	// Close ends idle connections.
	Close()
}

// ErrUnfit means that node and wallet can't be used as they are, and that
// waiting won't help.
var ErrUnfit = errors.New("node or wallet is not fit")

// unfit makes an error match ErrUnfit too.
type unfit struct{ error }

func (u unfit) Unwrap() error        { return u.error }
func (u unfit) Is(target error) bool { return target == ErrUnfit }

// Report is what node and wallet say about themselves, in rows for an operator.
type Report []struct{ Name, Text string }

// Warning is the name of rows with what an operator should change soon,
// although node and wallet can be used.
const Warning = "warning"

// all is the registry: one line for each coin.
func all() []Coin {
	return []Coin{
		monero(),
		bitcoin(),
		litecoin(),
	}
}

// Coins returns the coins that cards can be paid with. The first is the
// default.
func Coins() []Coin {
	var coins []Coin
	for _, c := range all() {
		if c.Settings != nil {
			coins = append(coins, c)
		}
	}
	return coins
}

// Currencies returns the currencies of Coins.
func Currencies() []card.Currency {
	var currencies []card.Currency
	for _, c := range Coins() {
		currencies = append(currencies, c.Currency)
	}
	return currencies
}

// ByCode returns the coin with a code, if cards can be paid with it.
func ByCode(code string) (Coin, bool) {
	for _, c := range Coins() {
		if c.Code == code {
			return c, true
		}
	}
	return Coin{}, false
}

// CheckSimulated is CheckAddress for a simulated chain of the coin: it also
// accepts the addresses that such a chain makes, and those of any network.
func (c Coin) CheckSimulated(address, _ string) error {
	if isSimulated(address) {
		return nil
	}
	return c.CheckAddress(address, "")
}

// Markets returns the names of markets by currency and rate source. It includes
// coins that cards can't be paid with yet.
func Markets() map[string]map[string]string {
	markets := map[string]map[string]string{}
	for _, c := range all() {
		markets[c.Code] = c.Markets
	}
	return markets
}

// hinted is an error with a hint for the operator.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Hint returns what an operator can do about the error.
func (h hinted) Hint() string { return h.hint }

// withHint adds a hint to err; nil stays nil.
func withHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return hinted{err, hint}
}
