package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Store keeps webhooks, events and deliveries. Running any of its methods twice
// is harmless. The error is card.ErrNoRow if a row does not exist, and
// card.ErrUnavailable if the database can't be reached.
type Store interface {
	// WebhookTx runs f in a transaction. It runs f again if the transaction
	// failed to serialize, so f must have no other effects. If the reply to
	// COMMIT is lost, WebhookTx returns an error although the transaction may
	// have been committed: look up the rows of f by their keys.
	WebhookTx(ctx context.Context, f func(Tx) error) error

	Feed
	// SeqBefore returns the Seq of the account's last event before since; 0 if
	// there is none.
	SeqBefore(ctx context.Context, account uuid.UUID, since time.Time) (int64, error)

	WebhookByID(ctx context.Context, account, id uuid.UUID) (*Webhook, error)
	// Webhooks returns an account's webhooks, oldest first.
	Webhooks(ctx context.Context, account uuid.UUID) ([]*Webhook, error)
	// DeleteWebhook deletes a webhook and its remaining deliveries; a no-op if
	// there is no such webhook.
	DeleteWebhook(ctx context.Context, account, id uuid.UUID) error
	// DeleteDeliveries deletes up to n deliveries to a webhook, and returns how
	// many it deleted.
	DeleteDeliveries(ctx context.Context, webhook uuid.UUID, n int) (int64, error)
	// Deliveries returns the deliveries that match, newest event first, at most
	// filter.Limit.
	Deliveries(ctx context.Context, webhook uuid.UUID, filter DeliveryFilter) ([]Delivery, error)
}

// Outbox stores the deliveries for a Sender. Its methods have the guarantees of
// Store.
type Outbox interface {
	// WebhookTx is like WebhookTx of Store.
	WebhookTx(ctx context.Context, f func(Tx) error) error

	// ClaimWebhooks claims up to n enabled webhooks with a delivery due at now
	// that are neither paused nor claimed. A claim lasts for ttl by the
	// database's clock. Webhooks with fewer failures come first, then those
	// served longest ago. Secrets is not set.
	ClaimWebhooks(ctx context.Context, now time.Time, n int, ttl time.Duration) ([]*Claim, error)
	// ReleaseWebhook ends a claim, unless it was lost.
	ReleaseWebhook(ctx context.Context, c *Claim) error
	// DueDeliveries returns up to n deliveries that are due at now, the longest
	// due first.
	DueDeliveries(ctx context.Context, webhook uuid.UUID, now time.Time, n int) ([]Delivery, error)
	// DueRetries is like DueDeliveries, but omits deliveries that are due
	// Immediately, and returns the oldest event first.
	DueRetries(ctx context.Context, webhook uuid.UUID, now time.Time, n int) ([]Delivery, error)
	// PruneDeliveries deletes up to n deliveries that are not pending and whose
	// event happened before the given time. It returns how many it deleted.
	PruneDeliveries(ctx context.Context, before time.Time, n int) (int64, error)
	// PruneReplies deletes up to n replies from before the given time, and
	// returns how many it deleted.
	PruneReplies(ctx context.Context, before time.Time, n int) (int64, error)
}

// Feed reads the events of accounts.
type Feed interface {
	// Events returns an account's events whose Seq is greater than after, in
	// the order of Seq, at most limit.
	Events(ctx context.Context, account uuid.UUID, after int64, limit int) ([]card.Event, error)
	// CardEvents is like Events, but returns only the events of one card.
	CardEvents(ctx context.Context, account, card uuid.UUID, after int64, limit int) ([]card.Event, error)
	// LastSeq returns the Seq of an account's newest event; 0 if there is none.
	LastSeq(ctx context.Context, account uuid.UUID) (int64, error)
	// LastSeqs returns the Seq of each account's newest event. It locks
	// nothing.
	LastSeqs(ctx context.Context, accounts []uuid.UUID) (map[uuid.UUID]int64, error)
	// LastSeqsOfCards returns the Seq of the newest event of each of the cards
	// that has one.
	LastSeqsOfCards(ctx context.Context, cards []uuid.UUID) (map[Topic]int64, error)
}

// Tx is one transaction. Callers must lock rows in the order webhooks,
// accounts.
type Tx interface {
	// InsertEvents stores events, assigns their Seq, and adds a delivery, due
	// Immediately, for each enabled webhook that wants them.
	InsertEvents(ctx context.Context, es []card.Event) error

	// LockAccount locks the account until the transaction ends. No other
	// transaction can insert its events or webhooks, so later events are
	// delivered to the webhooks as this transaction leaves them.
	LockAccount(ctx context.Context, account uuid.UUID) error
	CountWebhooks(ctx context.Context, account uuid.UUID) (int, error)
	InsertWebhook(ctx context.Context, w *Webhook) error
	// LockWebhook locks and returns a webhook.
	LockWebhook(ctx context.Context, account, id uuid.UUID) (*Webhook, error)
	// SaveWebhook stores a webhook. A new Version resets the sender's state.
	SaveWebhook(ctx context.Context, w *Webhook) error
	// SaveWebhookState stores a sender's state of a webhook, and renews the
	// claim. The error is card.ErrFenced if the claim was lost, or if the
	// webhook was disabled, deleted or changed to another Version.
	SaveWebhookState(ctx context.Context, c *Claim, s State, now time.Time, ttl time.Duration) error
	// CheckClaim returns card.ErrFenced if the claim was lost or the webhook
	// was deleted. Otherwise the webhook can't be claimed again before the
	// transaction ends.
	CheckClaim(ctx context.Context, c *Claim) error
	// SaveDeliveries stores deliveries with their attempts. It skips those
	// whose stored DueAt differs from before.
	SaveDeliveries(ctx context.Context, webhook uuid.UUID, before, after []Delivery) error
	// Redeliver makes a delivery due at now, and restarts its schedule. The
	// caller must have locked the webhook.
	Redeliver(ctx context.Context, account, webhook, event uuid.UUID, now time.Time) error
	// Reply returns the reply to the request with an account's idempotency key.
	// If that request ordered a card, only its hash is set.
	Reply(ctx context.Context, account uuid.UUID, key string) (Reply, error)
	// InsertReply stores a reply. The error is card.ErrDuplicate if the account
	// has used the key for any request.
	InsertReply(ctx context.Context, r Reply) error
	// RecoverDeliveries reads up to n events that follow the Seq after and did
	// not happen before since. If the webhook wants an event, and its delivery
	// is missing, failed or due later, the delivery becomes due at now.
	// RecoverDeliveries returns the number of these deliveries, and the Seq of
	// the last event it read, or after if there was none.
	RecoverDeliveries(ctx context.Context, account, webhook uuid.UUID, since time.Time, after int64, n int,
		now time.Time) (due, last int64, err error)
}

// Vault encrypts secrets.
type Vault interface {
	Seal(id uuid.UUID, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error)
	// Open returns an error if the ciphertext was changed, or belongs to
	// another webhook or field.
	Open(id uuid.UUID, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error)
}

// Poster sends to webhooks.
type Poster interface {
	// CheckURL returns an error if a URL is not allowed. The text completes a
	// sentence that begins with "url".
	CheckURL(url string) error
	// Post sends an event once, signed with each of the secrets.
	Post(ctx context.Context, url string, secrets []card.Secret, e card.Event) Attempt
}
