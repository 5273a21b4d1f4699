// Package driver defines what the package of a protocol implements for its
// coins. Package chain lists them.
//
// It may import packages card and settle.
package driver

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
	// on the network of ours: an address of the wallet, or "" if none is known.
	// The error continues a sentence that begins with the name of the field,
	// and does not quote the address.
	CheckAddress func(address, ours string) error
	// CheckTxID returns an error unless the text can be a transaction's id. The
	// error continues a sentence as in CheckAddress.
	CheckTxID func(txid string) error
	// Every is the time between two passes over the chain.
	Every time.Duration
	// Settings returns the coin's flags, with kong's tags, as a pointer to a
	// struct. It is nil for a coin that has rates but cannot be paid with yet.
	Settings func() Settings
}

// Settings are the flags of a coin.
type Settings interface {
	// RequiredConfirmations is the number of confirmations a payment needs.
	RequiredConfirmations() int
	// URLs returns the addresses of other programs, by the name of their flag.
	URLs() map[string]string
	// Open returns the coin's chain without any call. Its error may have a
	// hint.
	Open() (Node, error)
}

// Node is a chain that is read from a node and a wallet.
type Node interface {
	settle.Chain
	// Check reports whether node and wallet are fit for use. The error is
	// ErrUnfit if waiting will not help; any other is temporary. It may have a
	// hint. The report has the rows found before the error.
	Check(ctx context.Context) (Report, error)
	// Identify returns the fingerprint that Scan returns in its view.
	Identify(ctx context.Context) (string, error)
	// Balance returns the wallet's balance without the mempool. A view-only
	// wallet does not know of outgoing payments.
	Balance(ctx context.Context) (card.Total, error)
	// Close closes idle connections.
	Close()
}

// ErrUnfit means that node and wallet can't be used until an operator changes
// them.
var ErrUnfit = errors.New("node or wallet is not fit")

// Unfit makes err match ErrUnfit without changing its text.
func Unfit(err error) error { return unfit{err} }

type unfit struct{ error }

func (u unfit) Unwrap() error        { return u.error }
func (u unfit) Is(target error) bool { return target == ErrUnfit }

// Report describes node and wallet for an operator.
type Report []struct{ Name, Text string }

// Warning is the name of a row about a setup that works, but that the operator
// should change soon.
const Warning = "warning"

// WithHint adds to err the operator's remedy; nil stays nil.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return hinted{err, hint}
}

type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// Hint returns the operator's remedy.
func (h hinted) Hint() string { return h.hint }
