package settle

import (
	"context"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Store keeps transfers, cards and addresses. Every method is idempotent. The
// error is card.ErrUnavailable if the database cannot be reached.
type Store interface {
	// SettleTx runs f in a transaction, and again after a serialization
	// failure, so f must have no other effects. If the response to COMMIT is
	// lost, SettleTx returns an error although the transaction may have been
	// committed: look up the keys that f wrote.
	SettleTx(ctx context.Context, f func(Tx) error) error

	// AcquireLease acquires the lease if it is free or expired, and renews it
	// for its holder. Each call commits a mark, which attests to the epoch if
	// the store has seen the mark before it. The error is card.ErrFenced if
	// another holder has the lease, and card.ErrUnavailable if the row stays
	// locked for seconds.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (Lease, error)
	// ReleaseLease releases the lease; a no-op if l is not the current one.
	ReleaseLease(ctx context.Context, l Lease) error
	// AwaitLease records that holder waits for the lease during the next ttl.
	AwaitLease(ctx context.Context, name, holder string, ttl time.Duration) error
	// LeaseAwaited reports whether a process other than the holder of l waits
	// for the lease.
	LeaseAwaited(ctx context.Context, l Lease) (bool, error)

	// BeginEpoch begins an epoch for the holder of a lease, and returns the
	// lease with it. Addresses made before are no longer handed out. If the
	// epoch is stale, cards in stock are held until an operator releases them.
	// The error is card.ErrFenced if the lease was lost.
	BeginEpoch(ctx context.Context, l Lease, e Epoch) (Lease, error)
	// ResetFeeds advances the event numbers of all accounts, because events
	// since then may have been lost, and notifies the accounts. The error is
	// card.ErrFenced if the lease was lost.
	ResetFeeds(ctx context.Context, l Lease, since time.Time) error
	// NoteConflict stops handing out addresses and issuing cards until an
	// operator claims the wallet.
	NoteConflict(ctx context.Context, currency, why string) error

	// AddressPool returns the state of the address pool.
	AddressPool(ctx context.Context, currency string) (Pool, error)
	// DistrustPool stops handing out addresses until CheckedPool is called.
	DistrustPool(ctx context.Context, currency string) error

	// RequestRescan requests a rescan by the currency's wallet; a no-op if one
	// is pending. The error is card.ErrNoRow if the currency has no wallet yet.
	// The reason for an operator's request is Asked.
	RequestRescan(ctx context.Context, currency, reason string) error
	// NoteRescan records the progress of the pending rescan.
	NoteRescan(ctx context.Context, currency, progress string) error

	// Cursor returns the applied state of the chain. Before the first pass it
	// is zero except for Newest, which is NoPosition.
	Cursor(ctx context.Context, coin card.Currency) (Cursor, error)
	// LockedBlocks returns the heights of the n lowest blocks of a range with
	// counted and locked transfers, ascending.
	LockedBlocks(ctx context.Context, currency string, in Blocks, n int) ([]int64, error)
}

// Tx is a transaction. It locks rows in the order cards, webhooks, accounts.
type Tx interface {
	// CheckLease returns card.ErrFenced if the caller lost the lease. Otherwise
	// no other process can acquire it before the transaction ends.
	CheckLease(ctx context.Context, l Lease) error
	SaveCursor(ctx context.Context, currency string, c Cursor) error
	// TransfersIn returns the counted transfers in the mempool, above the
	// height since, and in the blocks again.
	TransfersIn(ctx context.Context, currency string, since int64, again []Blocks) ([]card.Transfer, error)
	// TransfersOf returns the counted transfers of transactions.
	TransfersOf(ctx context.Context, currency string, txids []string) ([]card.Transfer, error)
	UpsertTransfers(ctx context.Context, ts []card.Transfer) error
	// TransfersTo returns the counted transfers to addresses. A transfer that
	// an operator attributed to a card has the card's address.
	TransfersTo(ctx context.Context, currency string, addresses []string) ([]card.Transfer, error)

	// LockCards locks and returns the currency's cards that
	//   - have one of the addresses, or an attributed transfer to one;
	//   - are due for assessment at the tip;
	//   - wait for money and expired before the tip.
	LockCards(ctx context.Context, currency string, addresses []string, tip card.Tip) ([]*card.Card, error)
	// SaveVerdicts stores assessments, events, and an intent for each card to
	// issue that has none.
	SaveVerdicts(ctx context.Context, vs []card.Verdict) error

	// InsertAddresses adds addresses to the address pool.
	InsertAddresses(ctx context.Context, as []Address, pacedUntil time.Time) error
	// CheckedPool records that wallet and address pool were just compared.
	CheckedPool(ctx context.Context, currency string) error
	// EndRescan records that the whole chain was applied after a rescan.
	EndRescan(ctx context.Context, currency string) error
}

// Rates keeps today's rates in memory.
type Rates interface {
	// Rate returns the currency's rate. The error is card.ErrNoRate if there is
	// no fresh one.
	Rate(currency string) (card.Rate, error)
}
