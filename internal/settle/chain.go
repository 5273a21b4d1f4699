package settle

import (
	"context"
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Chain is the node and the wallet of one coin.
type Chain interface {
	Currency() card.Currency
	// Scan returns the chain's tip, and every incoming transfer in the mempool
	// and in the blocks of Query.View, each output of a transaction once. The
	// view is a snapshot: tip and Kept also hold for the reread blocks. The
	// error is card.ErrChainNotReady if the chain cannot be trusted at the
	// moment.
	Scan(ctx context.Context, q Query) (View, error)
	// NewAddresses returns the n addresses after a position, by ascending
	// position. A wallet makes missing addresses. If after is NoPosition, a
	// wallet that remembers its addresses continues after its own newest.
	NewAddresses(ctx context.Context, after int64, n int) ([]Address, error)
	// Reserve makes the wallet's addresses up to upTo, but no more than n per
	// call, and reports whether the wallet has the last one. A wallet sees
	// payments only to addresses that it has made. A chain that keeps no
	// addresses has them all.
	Reserve(ctx context.Context, upTo int64, n int) (bool, error)
	// Holds returns card.ErrWalletLost if the wallet lacks newest: it then does
	// not see payments to our addresses.
	Holds(ctx context.Context, newest Address) error
	// Beacon returns the wallet's beacon; the zero Beacon if it has none, or
	// cannot store one.
	Beacon(ctx context.Context) (Beacon, error)
	// SetBeacon stores b in the wallet's memory. If durable is set, the
	// wallet's file gets it too, there with Stored set, so that a restart of
	// the wallet is noticed.
	SetBeacon(ctx context.Context, b Beacon, durable bool) error
	// Recover makes the addresses up to newest again in a wallet that lost
	// data, unless newest is nil, and rescans its chain. That can take hours;
	// progress receives texts for an operator. Repeating it is harmless. The
	// error is card.ErrWrongChain, without any change, if node and wallet have
	// another fingerprint; "" matches any.
	Recover(ctx context.Context, fingerprint string, newest *Address, progress func(string)) error
}

// Claimed is the text of a conflict that an operator has settled in favor of
// this database.
const Claimed = "claimed"

// NoPosition is the position before the first.
const NoPosition int64 = -1

// Address is a payment address of the wallet.
type Address struct {
	Currency string
	Address  string
	Position int64 // index in the wallet
}

// Beacon is the state of a database as stored in the wallet it uses. It shows a
// restored database how far it had come, and lets two databases with the same
// wallet find each other.
type Beacon struct {
	Epoch      int64
	Position   int64     // newest address that may have been handed out
	PacedUntil time.Time // see Pool
	MarkedAt   time.Time // of the last mark, by the database's clock
	Stored     bool      // the wallet may have been restarted since SetBeacon; without it, it has not
	Server     string    // see Lease
	Conflict   bool      // another database used the wallet when this epoch began, and still wants it
	Claimed    bool      // an operator gave the wallet to this epoch's database
}

// Blocks are the blocks from height First to height Last; none if Last is
// lower.
type Blocks struct{ First, Last int64 }

// Query tells Scan which blocks to read.
type Query struct {
	Known []card.Tip // the tips of earlier views, newest first
	Since int64      // read the blocks above this height, and above View.Kept if tips are known
	Again []Blocks   // older blocks to reread; ascending, not adjacent
	// Newest is the position of the newest stored address, NoPosition if there
	// is none: a chain that keeps no addresses looks for payments up to there.
	Newest int64
}

// View returns the blocks that a Scan must read, as a view without transfers.
// kept is the view's Kept: the height of the first of q.Known that is still in
// the chain, 0 if none is. All changed blocks are included.
func (q Query) View(kept int64) View {
	v := View{Kept: kept, Since: q.Since}
	if len(q.Known) > 0 {
		v.Since = min(q.Since, kept)
	}
	for _, b := range slices.Backward(q.Again) {
		switch b.Last = min(b.Last, v.Since); {
		case b.First > b.Last:
		case b.Last == v.Since: // adjacent to the newer blocks
			v.Since = b.First - 1
		default:
			v.Again = append(v.Again, b)
		}
	}
	slices.Reverse(v.Again)
	return v
}

// View is a snapshot of a chain.
type View struct {
	Fingerprint string // of the network and the wallet; never changes for one database
	Tip         card.Tip
	Since       int64    // the view covers the blocks above this height
	Again       []Blocks // and these older ones; ascending, not adjacent
	// Up to this height the chain has not changed since an earlier view, so no
	// transfer can be missing.
	Kept int64
	// The wallet cannot follow a reorganization that removes this block. Zero
	// if the tip is unchanged, or the wallet follows any.
	Deep card.Tip
	// All incoming transfers in the mempool and in the covered blocks, with
	// Counted not set.
	Transfers []card.Transfer
}

// Covers reports whether the view includes the transfers at a height; 0 is the
// mempool.
func (v View) Covers(height int64) bool {
	return height == 0 || height > v.Since ||
		slices.ContainsFunc(v.Again, func(b Blocks) bool { return height >= b.First && height <= b.Last })
}

// Lease is the right to do something that only one process may do at a time.
type Lease struct {
	Name   string
	Holder string
	Fence  int64 // grows with every change of the holder
	// Epoch is the epoch that the holder attests to. It is 0 if the holder must
	// begin one, because it does not know whether the database is unchanged.
	Epoch    int64
	Now      time.Time // by the database's clock
	MarkedAt time.Time // of the last mark that attested to an epoch; zero without one
	// WentBack is set with Epoch 0 if the database is older than this process
	// has seen it, or has another history.
	WentBack bool
	// Server identifies the database's server since its last start; for a
	// database without one, the file and the machine since its last boot. It is
	// "" if neither can be identified.
	Server string
	// Serving means that Server is a process that keeps the database open, so
	// that its files cannot have been replaced.
	Serving bool
}

// LeaseName returns the name of the lease for watching a currency's chain.
func LeaseName(currency string) string { return "watch " + currency }

// Epoch is a period without a rollback of the database. Addresses that were
// made before an epoch are never handed out in it.
type Epoch struct {
	Currency   string
	Number     int64 // Unix milliseconds of its start; greater than all earlier numbers
	First      int64 // first position that it may hand out
	PacedUntil time.Time
	Quiet      time.Duration // pause of issuing that lets another database with the wallet notice
	// Stale means that the database may lack the latest changes: unissued cards
	// in stock may have been issued.
	Stale  bool
	Reason string
	// Continued means that Number is the last epoch, which continues: only
	// addresses are skipped.
	Continued bool
}

// Pool is the state of an address pool.
type Pool struct {
	Free   int      // addresses that can be handed out
	Newest *Address // stored address with the highest position, free or not; nil if there is none
	Next   int64    // position of the next address to hand out
	// PacedUntil is when addresses would run out if all made so far had been
	// used at the highest rate.
	PacedUntil time.Time
	LastEpoch  int64 // 0 if there was none
}

// Cursor is the applied state of a chain.
type Cursor struct {
	Fingerprint string
	Tip         card.Tip
	Deep        card.Tip // see View; without its time
	// LowestLocked is the height of the lowest transfer within the coin's lock
	// horizon that is counted and locked; 0 if there is none.
	LowestLocked int64
	// Rescan is the reason for a pending rescan, and later its progress; "" if
	// none is pending, and Asked if an operator requested it.
	Rescan string
	// Newest is the position of the newest stored address; NoPosition if there
	// is none.
	Newest int64
	// Conflict is why another database seems to use the wallet; "" if none
	// does, and Claimed if an operator assigned the wallet to this one.
	Conflict string
	// Restored means that the program restored the database since the last
	// epoch began.
	Restored bool
	// Believe means that an operator accepts the wallet's view after the
	// rescan: missing transfers are un-counted, and different ones are changed.
	Believe bool
}
