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
	// CardsByUUID returns cards of whatever account, by uuid.
	CardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*Card, error)
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

	// ClaimIntents hands out up to n intents whose card is paid and whose time has come, each for ttl.
	ClaimIntents(ctx context.Context, n int, ttl time.Duration) ([]Intent, error)
	// DeferIntent puts an intent off for a while; ErrFenced if the claim was lost.
	DeferIntent(ctx context.Context, i Intent, wait time.Duration, reason string) error
	// ParkIntent leaves an intent to an operator; ErrFenced if the claim was lost.
	ParkIntent(ctx context.Context, i Intent, reason string) error

	// Events returns an account's events whose Seq is greater than after, in its order, at most limit.
	Events(ctx context.Context, account uuid.UUID, after int64, limit int) ([]Event, error)
	// LastSeq returns the Seq of an account's newest event; 0 if there is none.
	LastSeq(ctx context.Context, account uuid.UUID) (int64, error)
	// SeqBefore returns the Seq of the last event from before since; 0 if there is none.
	SeqBefore(ctx context.Context, account uuid.UUID, since time.Time) (int64, error)

	WebhookByID(ctx context.Context, account, id uuid.UUID) (*Webhook, error)
	// Webhooks returns an account's webhooks, oldest first.
	Webhooks(ctx context.Context, account uuid.UUID) ([]*Webhook, error)
	// DeleteWebhook deletes a webhook, and what is left of its deliveries. One that is not there is no error.
	DeleteWebhook(ctx context.Context, account, id uuid.UUID) error
	// DeleteDeliveries deletes up to n deliveries to a webhook, and returns how many.
	DeleteDeliveries(ctx context.Context, webhook uuid.UUID, n int) (int64, error)
	// ClaimWebhooks hands out up to n enabled webhooks that have a delivery due at now, are not paused and not claimed, each for ttl by the
	// database's clock; those with the fewest failures first, of these the longest not served. Secrets are not set.
	ClaimWebhooks(ctx context.Context, now time.Time, n int, ttl time.Duration) ([]*WebhookClaim, error)
	// ReleaseWebhook ends a claim, unless it was lost.
	ReleaseWebhook(ctx context.Context, c *WebhookClaim) error
	// DueDeliveries returns up to n deliveries that are due at now, the longest due first.
	DueDeliveries(ctx context.Context, webhook uuid.UUID, now time.Time, n int) ([]Delivery, error)
	// DueRetries returns up to n of them that are not due AtOnce, the oldest event first.
	DueRetries(ctx context.Context, webhook uuid.UUID, now time.Time, n int) ([]Delivery, error)
	// Deliveries returns the deliveries that match, newest event first, at most filter.Limit.
	Deliveries(ctx context.Context, webhook uuid.UUID, filter DeliveryFilter) ([]Delivery, error)
	// Redeliver makes a delivery due at now, with a new schedule.
	Redeliver(ctx context.Context, account, webhook, event uuid.UUID, now time.Time) error
	// PruneDeliveries deletes up to n deliveries of events from before that are not pending, and returns how many.
	PruneDeliveries(ctx context.Context, before time.Time, n int) (int64, error)
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
	SaveAssessments(ctx context.Context, cards []*Card, as []Assessment) error

	InsertAddresses(ctx context.Context, as []Address) error
	// CheckedPool notes that the wallet was just compared with the pool. If it has made addresses that are not stored, and the last
	// comparison was not within a minute, no address that is stored now is handed out any more.
	CheckedPool(ctx context.Context, currency string, walletIsAhead bool) error
	// EndRescan notes that the whole chain was applied again.
	EndRescan(ctx context.Context, currency string) error

	InsertIntents(ctx context.Context, cards []uuid.UUID) error
	// SaveIssued ends the intents and stores the credentials. It fails with ErrFenced if a claim was lost, with ErrDuplicate if
	// another card has the same number.
	SaveIssued(ctx context.Context, made []Issued) error
	// ReopenIntent has a parked intent tried again.
	ReopenIntent(ctx context.Context, card uuid.UUID) error
	// Intent returns how far the making of a card is; nil if it was not decided.
	Intent(ctx context.Context, card uuid.UUID) (*IntentRecord, error)
	// InsertResolution stores what an operator decided, and the decided amounts of the card, which must be locked.
	InsertResolution(ctx context.Context, r Resolution, c *Card) error

	// InsertEvents gives the events their Seq, and makes a delivery to each enabled webhook that wants them, due AtOnce.
	InsertEvents(ctx context.Context, es []Event) error

	// LockAccount waits until no other transaction inserts events or webhooks of an account, and keeps others from it until the end: events
	// that commit later are for the webhooks as they are then.
	LockAccount(ctx context.Context, account uuid.UUID) error
	CountWebhooks(ctx context.Context, account uuid.UUID) (int, error)
	InsertWebhook(ctx context.Context, w *Webhook) error
	// LockWebhook returns a webhook, locked.
	LockWebhook(ctx context.Context, account, id uuid.UUID) (*Webhook, error)
	// SaveWebhook stores what clients decide of a webhook. With a new Version, what a sender noted is forgotten.
	SaveWebhook(ctx context.Context, w *Webhook) error
	// SaveWebhookState stores what a sender notes, and prolongs its claim. It is ErrFenced if the claim was lost, or the webhook has another
	// Version, is disabled or was deleted.
	SaveWebhookState(ctx context.Context, c *WebhookClaim, s WebhookState, now time.Time, ttl time.Duration) error
	// CheckClaim fails with ErrFenced if the claim was lost or the webhook was deleted, and keeps it from changing hands until the end.
	CheckClaim(ctx context.Context, c *WebhookClaim) error
	// SaveDeliveries stores how far deliveries are, and their attempts, except of those that are no longer due as they were before.
	SaveDeliveries(ctx context.Context, webhook uuid.UUID, before, after []Delivery) error
	// RecoverDeliveries looks at up to n events that follow Seq after and happened since, and makes due at now those that the webhook wants
	// and that have no delivery, or one that failed or is due later. It returns how many these are, and the Seq of the last event it looked at, or after.
	RecoverDeliveries(ctx context.Context, account, webhook uuid.UUID, since time.Time, after int64, n int, now time.Time) (due, last int64, err error)
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
	Seal(id uuid.UUID, account uuid.UUID, field string, plaintext Secret) ([]byte, error)
	// Open fails if the ciphertext was changed, or belongs to another card or field.
	Open(id uuid.UUID, account uuid.UUID, field string, ciphertext []byte) (Secret, error)
	// Digest returns a keyed hash; label keeps hashes for different purposes apart.
	Digest(label string, data []byte) ([]byte, error)
}

// Rates knows today's rates without asking anybody: it answers from memory.
type Rates interface {
	// Rate returns ErrNoRate if there is no fresh one.
	Rate(currency string) (Rate, error)
}

// Issuer makes cards. The same key always yields the same card, however often it is asked.
type Issuer interface {
	// Issue returns ErrDeclined if no card was made and none will be. After any other error the card may have been made:
	// it is asked for again with the same key.
	Issue(ctx context.Context, key string, usd USD) (Credentials, error)
}

// Sandbox pays without money, on the simulated chain of one currency.
type Sandbox interface {
	// Pay sends amount, if it is not 0, and lets the chain grow until what address received has the confirmations.
	// It returns the tip that shows it.
	Pay(ctx context.Context, address string, amount Amount, confirmations int) (Tip, error)
}
