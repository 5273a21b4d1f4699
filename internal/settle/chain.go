package settle

import (
	"context"

	"github.com/cardmint/cardmint/internal/card"
)

// Chain is what the watcher asks of the node and wallet of one coin.
type Chain interface {
	Currency() card.Currency
	// Scan returns the chain's tip, and every incoming transfer above the height since and in the mempool. known are the tips of views
	// before, newest first: View.Kept is the height of the first that is still part of the chain, 0 if none is. newest is the newest position of an address, NoPosition if there is none: a chain that keeps nothing looks for payments
	// up to there.
	// No transfer (transaction and output) is there twice. It returns card.ErrChainNotReady if the chain can't be trusted at the moment.
	Scan(ctx context.Context, known []card.Tip, since, newest int64) (View, error)
	// NewAddresses makes n addresses, in ascending positions after the given one, which is NoPosition for the first. A wallet that remembers
	// what it made goes on from there instead.
	NewAddresses(ctx context.Context, after int64, n int) ([]Address, error)
	// Ahead reports whether the wallet has made addresses after newest. It returns card.ErrWalletLost if the wallet does not
	// have newest itself: then it would not see payments to its own addresses.
	Ahead(ctx context.Context, newest Address) (bool, error)
	// Recover has a wallet that lost what it knew make its addresses up to newest again, if there are any, and look through the whole
	// chain again. It can take hours; progress is told what goes on, in words for an operator. Repeating it is harmless.
	// It is card.ErrWrongChain, and nothing is done, if the fingerprint of node and wallet is not the one given, unless that is "".
	Recover(ctx context.Context, fingerprint string, newest *Address, progress func(string)) error
}

// NoPosition is the position before the first.
const NoPosition int64 = -1

// Address is a payment address of the wallet.
type Address struct {
	Currency string
	Address  string
	Position int64 // where the wallet keeps it
}

// View is what a chain shows at one moment.
type View struct {
	Fingerprint string // of the network and the wallet; never changes for one database
	Tip         card.Tip
	Since       int64           // the view holds every incoming transfer above this height, and in the mempool
	Kept        int64           // up to this height the chain is as it was in a view before: nothing that it held there can be gone
	Deep        card.Tip        // if this block leaves the chain, the wallet can't follow; the zero Tip if the tip is as before, or it always can
	Transfers   []card.Transfer // Counted is not set
}

// Lease is the right to do something that only one process may do at a time.
type Lease struct {
	Name   string
	Holder string
	Fence  int64 // grows with every change of hands
}

// Cursor is how far a chain has been applied.
type Cursor struct {
	Fingerprint  string
	Tip          card.Tip
	Deep         card.Tip // see View; without its time
	LowestLocked int64    // height of the lowest counted transfer that is locked, in the newest blocks up to the coin's lock horizon; 0 if none
	// Rescan says why the wallet has to look through its whole chain again before it is believed, and how far it is; "" if it has not.
	Rescan string
	// Newest is the newest position of an address that is stored; NoPosition if there is none.
	Newest int64
	// Believe says that an operator wants what the wallet then no longer shows to be un-counted.
	Believe bool
}
