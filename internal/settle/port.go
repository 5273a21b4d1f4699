package settle

import (
	"context"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Store keeps transfers, cards and addresses. Every method outside Tx is harmless when it runs twice. A store out of reach is
// card.ErrUnavailable.
type Store interface {
	// SettleTx runs f in a transaction; f may run again if the transaction failed to serialise, so it must do nothing else.
	// A lost reply to COMMIT is an error although the transaction may have happened: what f writes is found by its keys.
	SettleTx(ctx context.Context, f func(Tx) error) error

	// AcquireLease takes the lease if it is free or expired, or prolongs it if the holder has it; ErrFenced if another has it. Like all that
	// takes or claims below it gives up with ErrUnavailable if it has to wait for more than seconds.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (Lease, error)
	ReleaseLease(ctx context.Context, l Lease) error

	// AddressPool returns how many addresses are free, and the one with the highest position ever stored, if there is any.
	AddressPool(ctx context.Context, currency string) (free int, highest *Address, err error)
	// DistrustPool has no address handed out until the wallet is seen to agree again.
	DistrustPool(ctx context.Context, currency string) error

	// RequestRescan has the wallet of a currency look through its whole chain again, unless it is to do so already. With believe, what it
	// then no longer shows is un-counted. It is ErrNotFound if the currency has no wallet yet.
	RequestRescan(ctx context.Context, currency, reason string, believe bool) error
	// NoteRescan says how far that is.
	NoteRescan(ctx context.Context, currency, progress string) error

	// Cursor returns how far the chain has been applied; the zero Cursor before the first time.
	Cursor(ctx context.Context, coin card.Currency) (Cursor, error)
}

// Tx is what happens within one transaction. The rows it locks are locked in the order cards, webhooks, accounts.
type Tx interface {
	// CheckLease fails with ErrFenced if the lease is no longer the caller's, and keeps it from changing hands until the end.
	CheckLease(ctx context.Context, l Lease) error
	SaveCursor(ctx context.Context, currency string, c Cursor) error
	// TransfersSince returns the counted transfers above a height or in the mempool.
	TransfersSince(ctx context.Context, currency string, height int64) ([]card.Transfer, error)
	UpsertTransfers(ctx context.Context, ts []card.Transfer) error
	// TransfersTo returns the counted transfers to addresses.
	TransfersTo(ctx context.Context, currency string, addresses []string) ([]card.Transfer, error)

	// LockCards returns the cards of a currency, locked, that have one of the addresses, or that are ready to be assessed
	// at the tip, or that wait for money and expired before it.
	LockCards(ctx context.Context, currency string, addresses []string, tip card.Tip) ([]*card.Card, error)
	// SaveVerdicts stores assessments, an intent for each card that is to be issued and has none, and events.
	SaveVerdicts(ctx context.Context, vs []card.Verdict) error

	InsertAddresses(ctx context.Context, as []Address) error
	// CheckedPool notes that the wallet was just compared with the pool. If it has made addresses that are not stored, and the last
	// comparison was not within a minute, no address that is stored now is handed out any more.
	CheckedPool(ctx context.Context, currency string, walletIsAhead bool) error
	// EndRescan notes that the whole chain was applied again.
	EndRescan(ctx context.Context, currency string) error
}

// Rates knows today's rates without asking anybody: it answers from memory.
type Rates interface {
	// Rate returns card.ErrNoRate if there is no fresh one.
	Rate(currency string) (card.Rate, error)
}
