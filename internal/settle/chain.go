package settle

import (
	"context"
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Chain is what the watcher asks of the node and wallet of one coin.
type Chain interface {
	Currency() card.Currency
	// Scan returns the chain's tip, and every incoming transfer in the mempool
	// and in the blocks of the view that Query.View returns, each (transaction
	// and output) once. Everything it returns is of one moment: tip and Kept
	// hold for the blocks that were read again, too. The error is
	// card.ErrChainNotReady if the chain can't be trusted at the moment.
	Scan(ctx context.Context, q Query) (View, error)
	// NewAddresses returns the n addresses that follow the position after, by
	// ascending position. A wallet makes those that it lacks. If after is
	// NoPosition, a wallet that remembers which addresses it made continues
	// after its own newest.
	NewAddresses(ctx context.Context, after int64, n int) ([]Address, error)
	// Reserve has the wallet make addresses until it has the one at upTo, but
	// no more than n at a time, and reports whether it has. A wallet sees
	// payments only to addresses that it has made. A chain that keeps no
	// addresses has them all.
	Reserve(ctx context.Context, upTo int64, n int) (bool, error)
	// Holds returns card.ErrWalletLost if the wallet does not have newest: it
	// then does not see payments to our addresses.
	Holds(ctx context.Context, newest Address) error
	// Beacon returns what the wallet carries about the database that uses it;
	// the zero Beacon if it carries nothing, or can't.
	Beacon(ctx context.Context) (Beacon, error)
	// SetBeacon makes the wallet carry b. If durable is set, the wallet's file
	// gets it too, with Stored set: the wallet itself carries it without, so
	// that a restart of the wallet shows.
	SetBeacon(ctx context.Context, b Beacon, durable bool) error
	// Recover has a wallet that lost data make its addresses up to newest
	// again, unless newest is nil, and rescan its chain. It can take hours; it
	// calls progress with texts for an operator. Repeating it is harmless. The
	// error is card.ErrWrongChain, and nothing is done, if node and wallet have
	// another fingerprint than the one given; "" matches any.
	Recover(ctx context.Context, fingerprint string, newest *Address, progress func(string)) error
}

// Claimed is the text of a conflict that an operator has decided.
const Claimed = "claimed"

// NoPosition is the position before the first.
const NoPosition int64 = -1

// Address is a payment address of the wallet.
type Address struct {
	Currency string
	Address  string
	Position int64 // its index in the wallet
}

// Beacon is what a wallet carries about the database that uses it. A database
// that is restored finds there how far it had come, and two databases that use
// one wallet find each other.
type Beacon struct {
	Epoch      int64
	Position   int64     // of the newest address that may have been handed out
	PacedUntil time.Time // see Pool
	MarkedAt   time.Time // of the last mark, by the database's clock
	Stored     bool      // the wallet may have been restarted since it was set; otherwise it has not
	Server     string    // see Lease
	Conflict   bool      // another database had the wallet when this epoch began, and still wants it
	Claimed    bool      // an operator gave the wallet to this epoch's database
}

// Blocks are the blocks from the height First to the height Last; none if that
// is lower.
type Blocks struct{ First, Last int64 }

// Query is what a pass asks a chain.
type Query struct {
	Known []card.Tip // the tips of earlier views, newest first
	Since int64      // the blocks above this height are read, and those above View.Kept if some tips are known
	Again []Blocks   // older blocks to read again; ascending, and apart
	// Newest is the position of the newest stored address, NoPosition if there
	// is none: a chain that keeps no addresses looks for payments up to there.
	Newest int64
}

// View returns which blocks a Scan has to read, as a view without transfers.
// kept is its Kept: the height of the first of q.Known that is still part of
// the chain, 0 if none is. Nothing that changed is left out.
func (q Query) View(kept int64) View {
	v := View{Kept: kept, Since: q.Since}
	if len(q.Known) > 0 {
		v.Since = min(q.Since, kept)
	}
	for _, b := range slices.Backward(q.Again) {
		switch b.Last = min(b.Last, v.Since); {
		case b.First > b.Last:
		case b.Last == v.Since: // one stretch with the newer blocks
			v.Since = b.First - 1
		default:
			v.Again = append(v.Again, b)
		}
	}
	slices.Reverse(v.Again)
	return v
}

// View is what a chain shows at one moment.
type View struct {
	Fingerprint string // of the network and the wallet; never changes for one database
	Tip         card.Tip
	Since       int64    // the blocks above this height were read
	Again       []Blocks // so were these below; ascending, and apart
	// up to this height the chain has not changed since an earlier view, so
	// that no transfer can be gone
	Kept int64
	// if this block leaves the chain, the wallet can't follow; zero if the tip
	// is as before, or it always can
	Deep card.Tip
	// every incoming transfer in the mempool and in the blocks that were read,
	// with Counted not set
	Transfers []card.Transfer
}

// Covers reports whether the view has the transfers at a height; 0 is the
// mempool.
func (v View) Covers(height int64) bool {
	return height == 0 || height > v.Since ||
		slices.ContainsFunc(v.Again, func(b Blocks) bool { return height >= b.First && height <= b.Last })
}

// Lease is the right to do something that only one process may do at a time.
type Lease struct {
	Name   string
	Holder string
	Fence  int64 // grows whenever the holder changes
	// Epoch is the one that the holder attests to; 0 if it must begin one,
	// because it does not know whether the database is as it was.
	Epoch    int64
	Now      time.Time // by the database's clock
	MarkedAt time.Time // when an epoch was last attested to; zero if never
	// with Epoch 0: the database is older than what this process has seen of
	// it, or follows another history
	WentBack bool
	// Server identifies the database's server since its last start; for a
	// database without one, the file and the machine since its last boot. It
	// is "" if nothing identifies them.
	Server string
	// Serving means that Server is a process that has the database open all
	// the time, so that nothing else can have replaced the files under it.
	Serving bool
}

// LeaseName returns the name of the lease of whoever watches a currency's
// chain.
func LeaseName(currency string) string { return "watch " + currency }

// Epoch is a time in which a database is known not to have gone back. Addresses
// that were made before it are never handed out in it.
type Epoch struct {
	Currency   string
	Number     int64 // Unix milliseconds of its beginning, and greater than those before
	First      int64 // position of the first address that it may hand out
	PacedUntil time.Time
	Quiet      time.Duration // nothing is issued so long, in which another database that uses the wallet would notice
	// the database does not know what happened last: cards in stock that are
	// not issued may have been
	Stale  bool
	Reason string
	// Continued means that Number is the last epoch, which goes on: only
	// addresses are skipped.
	Continued bool
}

// Pool is the state of an address pool.
type Pool struct {
	Free   int      // addresses that can be handed out
	Newest *Address // the stored address with the highest position, free or not; nil if there is none
	Next   int64    // position of the next address to hand out
	// PacedUntil is when addresses would run out if all that were made had been
	// used at the highest rate.
	PacedUntil time.Time
	LastEpoch  int64 // 0 if there was none
}

// Cursor is how far a chain has been applied.
type Cursor struct {
	Fingerprint string
	Tip         card.Tip
	Deep        card.Tip // see View; without its time
	// height of the lowest transfer, within the coin's lock horizon, that is
	// counted and locked; 0 if there is none
	LowestLocked int64
	// Rescan is the reason for a pending rescan, and its progress; "" if none
	// is pending, and Asked if an operator asks for one.
	Rescan string
	// Newest is the position of the newest stored address; NoPosition if there
	// is none.
	Newest int64
	// Conflict says that another database uses the wallet; "" if none does, and
	// Claimed if an operator gave the wallet to this one.
	Conflict string
	// Restored means that the database was restored by the program since the
	// last epoch began.
	Restored bool
	// Believe means that transfers which the wallet still lacks after the
	// rescan are un-counted, and those that it shows otherwise changed, as an
	// operator asked.
	Believe bool
}
