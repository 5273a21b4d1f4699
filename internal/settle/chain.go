package settle

import (
	"context"

	"github.com/cardmint/cardmint/internal/card"
)

// Chain is what the watcher asks of the node and wallet of one coin.
type Chain interface {
	Currency() card.Currency
	// Scan returns the chain's tip, and every incoming transfer above the height since and in the mempool, each (transaction and output)
	// once. known are the tips of earlier views, newest first: View.Kept is the height of the first one that is still part of the chain,
	// 0 if none is. newest is the position of the newest stored address, NoPosition if there is none: a chain that keeps no addresses
	// looks for payments up to there. The error is card.ErrChainNotReady if the chain can't be trusted at the moment.
	Scan(ctx context.Context, known []card.Tip, since, newest int64) (View, error)
	// NewAddresses makes n addresses and returns them by ascending position. They follow the position after, which is NoPosition if there
	// is no address yet. A wallet that remembers which addresses it made continues after its own newest instead.
	NewAddresses(ctx context.Context, after int64, n int) ([]Address, error)
	// Ahead reports whether the wallet has made addresses after newest. The error is card.ErrWalletLost if the wallet does not have
	// newest itself: it then does not see payments to our addresses.
	Ahead(ctx context.Context, newest Address) (bool, error)
	// Recover has a wallet that lost data make its addresses up to newest again, unless newest is nil, and rescan its chain. It can take
	// hours; it calls progress with texts for an operator. Repeating it is harmless. The error is card.ErrWrongChain, and nothing is
	// done, if node and wallet have another fingerprint than the one given; "" matches any.
	Recover(ctx context.Context, fingerprint string, newest *Address, progress func(string)) error
}

// NoPosition is the position before the first.
const NoPosition int64 = -1

// Address is a payment address of the wallet.
type Address struct {
	Currency string
	Address  string
	Position int64 // its index in the wallet
}

// View is what a chain shows at one moment.
type View struct {
	Fingerprint string // of the network and the wallet; never changes for one database
	Tip         card.Tip
	Since       int64           // Transfers has every incoming transfer above this height and in the mempool
	Kept        int64           // up to this height the chain has not changed since an earlier view, so that no transfer can be gone
	Deep        card.Tip        // if this block leaves the chain, the wallet can't follow; zero if the tip is as before, or it always can
	Transfers   []card.Transfer // with Counted not set
}

// Lease is the right to do something that only one process may do at a time.
type Lease struct {
	Name   string
	Holder string
	Fence  int64 // grows whenever the holder changes
}

// Cursor is how far a chain has been applied.
type Cursor struct {
	Fingerprint  string
	Tip          card.Tip
	Deep         card.Tip // see View; without its time
	LowestLocked int64    // height of the lowest transfer, within the coin's lock horizon, that is counted and locked; 0 if there is none
	// Rescan is the reason for a pending rescan, and its progress; "" if none is pending.
	Rescan string
	// Newest is the position of the newest stored address; NoPosition if there is none.
	Newest int64
	// Believe means that transfers which the wallet still lacks after the rescan are un-counted, as an operator asked.
	Believe bool
}
