package card

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Store keeps everything that must survive a crash. Every method outside Tx is harmless when it runs twice,
// because a driver may repeat a statement whose reply was lost. Missing rows are ErrNotFound, a store out of reach ErrUnavailable.
type Store interface {
	// InTx runs f in a transaction; f may run again if the transaction failed to serialise, so it must do nothing else.
	// A lost reply to COMMIT is an error although the transaction may have happened: what f writes is found by its keys.
	InTx(ctx context.Context, f func(Tx) error) error

	// InsertCard reports false if the card's uuid, address or idempotency key is taken, or money came to the address before.
	InsertCard(ctx context.Context, c *Card) (bool, error)
	CardByUUID(ctx context.Context, account, id uuid.UUID) (*Card, error)
	CardByIdempotencyKey(ctx context.Context, account uuid.UUID, key string) (*Card, error)
	// Cards returns the cards that match, newest first, at most filter.Limit.
	Cards(ctx context.Context, filter CardFilter) ([]*Card, error)
	// FindCards returns cards of whatever account, newest first; those that need an operator oldest first.
	FindCards(ctx context.Context, search CardSearch) ([]*Card, error)
	// Record returns everything that is kept of a card of whatever account but its credentials.
	Record(ctx context.Context, id uuid.UUID) (Record, error)
	// Unattributed returns the counted transfers to addresses of no card, newest first, at most limit.
	Unattributed(ctx context.Context, limit int) ([]Transfer, error)
	// Books adds everything up, as of one moment.
	Books(ctx context.Context) (Books, error)
	// Standing says what an account owes; without open, OpenUSD is 0 and costs nothing.
	Standing(ctx context.Context, account uuid.UUID, open bool) (Standing, error)

	Accounts(ctx context.Context) ([]Account, error)

	// AcquireLease takes the lease if it is free or expired, or prolongs it if the holder has it; ErrFenced if another has it. Like all that
	// takes or claims below it gives up with ErrUnavailable if it has to wait for more than seconds.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (Lease, error)
	ReleaseLease(ctx context.Context, l Lease) error

	// TakeAddresses returns up to n addresses of a currency that were never returned before, and never will be again. It returns none
	// unless the wallet was seen to agree within the last minute (CheckedPool).
	TakeAddresses(ctx context.Context, currency string, n int) ([]string, error)
	// AddressPool returns how many addresses are free, and the one with the highest position ever stored, if there is any.
	AddressPool(ctx context.Context, currency string) (free int, highest *Address, err error)
	// PoolAge returns for how long the wallet was not seen to agree with the pool; ErrNotFound if it never was.
	PoolAge(ctx context.Context, currency string) (time.Duration, error)
	// DistrustPool has no address handed out until the wallet is seen to agree again.
	DistrustPool(ctx context.Context, currency string) error

	// RequestRescan has the wallet of a currency look through its whole chain again, unless it is to do so already. With believe, what it
	// then no longer shows is un-counted. It is ErrNotFound if the currency has no wallet yet.
	RequestRescan(ctx context.Context, currency, reason string, believe bool) error
	// NoteRescan says how far that is.
	NoteRescan(ctx context.Context, currency, progress string) error

	// Cursor returns how far the chain has been applied; the zero Cursor before the first time.
	Cursor(ctx context.Context, currency string) (Cursor, error)
}

// Tx is what happens within one transaction. The rows it locks are locked in the order cards, webhooks, accounts.
type Tx interface {
	// CheckLease fails with ErrFenced if the lease is no longer the caller's, and keeps it from changing hands until the end.
	CheckLease(ctx context.Context, l Lease) error
	SaveCursor(ctx context.Context, currency string, c Cursor) error
	// Tip returns the newest block that was applied; the zero Tip before the first time.
	Tip(ctx context.Context, currency string) (Tip, error)

	// TransfersSince returns the counted transfers above a height or in the mempool.
	TransfersSince(ctx context.Context, currency string, height int64) ([]Transfer, error)
	UpsertTransfers(ctx context.Context, ts []Transfer) error
	// TransfersTo returns the counted transfers to addresses.
	TransfersTo(ctx context.Context, currency string, addresses []string) ([]Transfer, error)

	// LockCards returns the cards of a currency, locked, that have one of the addresses, or that are ready to be assessed
	// at the tip, or that wait for money and expired before it.
	LockCards(ctx context.Context, currency string, addresses []string, tip Tip) ([]*Card, error)
	// LockCardsByUUID returns those of the cards that exist, locked, by uuid.
	LockCardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*Card, error)
	// SaveVerdicts stores assessments, an intent for each card that is to be issued and has none, and events.
	SaveVerdicts(ctx context.Context, vs []Verdict) error

	InsertAddresses(ctx context.Context, as []Address) error
	// CheckedPool notes that the wallet was just compared with the pool. If it has made addresses that are not stored, and the last
	// comparison was not within a minute, no address that is stored now is handed out any more.
	CheckedPool(ctx context.Context, currency string, walletIsAhead bool) error
	// EndRescan notes that the whole chain was applied again.
	EndRescan(ctx context.Context, currency string) error

	// ReopenIntent has a parked intent tried again.
	ReopenIntent(ctx context.Context, card uuid.UUID) error
	// Intent returns how far the making of a card is; nil if it was not decided.
	Intent(ctx context.Context, card uuid.UUID) (*IntentRecord, error)
	// InsertResolution stores what an operator decided, and the decided amounts of the card, which must be locked.
	InsertResolution(ctx context.Context, r Resolution, c *Card) error

	// InsertEvents gives the events their Seq, and makes a delivery to each enabled webhook that wants them, due AtOnce.
	InsertEvents(ctx context.Context, es []Event) error
}

// LongestLock is for how many blocks a locked transfer is read again and again. That one which is locked for longer was unlocked
// is noticed when the wallet looks through its whole chain.
const LongestLock = 5000

// Cursor is how far a chain has been applied.
type Cursor struct {
	Fingerprint  string
	Tip          Tip
	Deep         Tip   // see View; without its time
	LowestLocked int64 // height of the lowest counted transfer that is locked, in the newest LongestLock blocks; 0 if none
	// Rescan says why the wallet has to look through its whole chain again before it is believed, and how far it is; "" if it has not.
	Rescan string
	// Believe says that an operator wants what the wallet then no longer shows to be un-counted.
	Believe bool
}

// CardFilter selects cards of an account.
type CardFilter struct {
	AccountID uuid.UUID
	Status    Status    // "" for all
	Before    uuid.UUID // only cards older than this one; zero for all
	Limit     int       // at most so many; for Service.ListCards 0 is all
}

// Vault encrypts what must not be read from a database.
type Vault interface {
	// OpenCredentials fails if a field was changed, or belongs to another card or field.
	OpenCredentials(id, account uuid.UUID, sealed Sealed) (Credentials, error)
}

// Rates knows today's rates without asking anybody: it answers from memory.
type Rates interface {
	// Rate returns ErrNoRate if there is no fresh one.
	Rate(currency string) (Rate, error)
}

// Sandbox pays without money, on the simulated chain of one currency.
type Sandbox interface {
	// Pay sends amount, if it is not 0, and lets the chain grow until what address received has the confirmations.
	// It returns the tip that shows it.
	Pay(ctx context.Context, address string, amount Amount, confirmations int) (Tip, error)
}
