package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Store keeps webhooks, events and deliveries. Every method outside Tx is harmless when it runs twice. A row that is not there is
// card.ErrNotFound, a store out of reach card.ErrUnavailable.
type Store interface {
	// WebhookTx runs f in a transaction; f may run again if the transaction failed to serialise, so it must do nothing else.
	// A lost reply to COMMIT is an error although the transaction may have happened: what f writes is found by its keys.
	WebhookTx(ctx context.Context, f func(Tx) error) error

	// Events returns an account's events whose Seq is greater than after, in its order, at most limit.
	Events(ctx context.Context, account uuid.UUID, after int64, limit int) ([]card.Event, error)
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
	ClaimWebhooks(ctx context.Context, now time.Time, n int, ttl time.Duration) ([]*Claim, error)
	// ReleaseWebhook ends a claim, unless it was lost.
	ReleaseWebhook(ctx context.Context, c *Claim) error
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

// Tx is what happens within one transaction. The rows it locks are locked in the order webhooks, accounts.
type Tx interface {
	// InsertEvents gives the events their Seq, and makes a delivery to each enabled webhook that wants them, due AtOnce.
	InsertEvents(ctx context.Context, es []card.Event) error

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
	SaveWebhookState(ctx context.Context, c *Claim, s State, now time.Time, ttl time.Duration) error
	// CheckClaim fails with ErrFenced if the claim was lost or the webhook was deleted, and keeps it from changing hands until the end.
	CheckClaim(ctx context.Context, c *Claim) error
	// SaveDeliveries stores how far deliveries are, and their attempts, except of those that are no longer due as they were before.
	SaveDeliveries(ctx context.Context, webhook uuid.UUID, before, after []Delivery) error
	// RecoverDeliveries looks at up to n events that follow Seq after and happened since, and makes due at now those that the webhook wants
	// and that have no delivery, or one that failed or is due later. It returns how many these are, and the Seq of the last event it looked at, or after.
	RecoverDeliveries(ctx context.Context, account, webhook uuid.UUID, since time.Time, after int64, n int, now time.Time) (due, last int64, err error)
}

// Vault encrypts secrets.
type Vault interface {
	Seal(id uuid.UUID, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error)
	// Open fails if the ciphertext was changed, or belongs to another webhook or field.
	Open(id uuid.UUID, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error)
}

// Poster sends to webhooks.
type Poster interface {
	// CheckURL returns what is wrong with an address, as a text that goes on after its name.
	CheckURL(url string) error
	// Post sends an event once, signed with each of the secrets.
	Post(ctx context.Context, url string, secrets []card.Secret, e card.Event) Attempt
}
