package issue

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Store stores intents. Every method outside Tx is harmless when it runs twice.
// The error is card.ErrUnavailable if the database can't be reached.
type Store interface {
	// IssueTx runs f in a transaction. f may run again after a serialization
	// failure, so it must have no other effect. After an error the transaction
	// may still have been committed, if the reply to COMMIT was lost: look its
	// rows up by their keys.
	IssueTx(ctx context.Context, f func(Tx) error) error

	// ClaimIntents claims up to n open or pending intents of the claim's
	// supplier for ttl. Their cards are paid, they are due, and the accounts
	// take turns. The claim commits key and supplier, and FirstAskedAt if no
	// request was sent before. An intent with an earlier request keeps its
	// supplier. The error is card.ErrUnavailable if a lock takes more than
	// seconds.
	ClaimIntents(ctx context.Context, claim Claim, n int, ttl time.Duration) ([]Intent, error)
	// ProlongIntents extends claims that were not lost to ttl from now.
	ProlongIntents(ctx context.Context, intents []Intent, ttl time.Duration) error
	// ExpediteIntents makes the pending intents of these cards at a supplier
	// due now.
	ExpediteIntents(ctx context.Context, supplier string, cards []uuid.UUID) error
	// CardsByUUID returns cards of any account, by uuid. It omits rows that
	// can't be decoded, and reports them.
	CardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error)
	// SaveIntents stores intents whose card was not issued. It skips those
	// whose claim was lost.
	SaveIntents(ctx context.Context, intents []Intent) error
}

// Claim selects the intents of a supplier:
//   - intents that already have this supplier
//   - intents without a supplier, if the first share that covers their amount
//     is this supplier's
//   - for the first supplier: intents whose amount no share covers
//   - for the first supplier: intents whose supplier has no share. If it may
//     have received a request, they must have been due for a while, so that a
//     process that still knows the supplier could have claimed them.
type Claim struct {
	Supplier string
	Shares   []Share // of all suppliers, by priority; at least one
}

// Tx is a transaction.
type Tx interface {
	// LockCardsByUUID locks and returns the cards that exist, by uuid. The
	// error is card.ErrCorrupt if one can't be decoded.
	LockCardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error)
	// SaveIssued completes the intents and stores the credentials. The error is
	// card.ErrFenced if a claim was lost, and card.ErrDuplicate if another card
	// has the same number.
	SaveIssued(ctx context.Context, cards []IssuedCard) error
	// SaveIntents stores intents whose card was not issued. The error is
	// card.ErrFenced if a claim was lost.
	SaveIntents(ctx context.Context, intents []Intent) error
	// InsertEvents sets the Seq of the events, and inserts a delivery for each
	// enabled webhook that subscribes to them.
	InsertEvents(ctx context.Context, es []card.Event) error
}

// Vault encrypts credentials.
type Vault interface {
	// SealCredentials encrypts each field separately, bound to the card.
	SealCredentials(id, account uuid.UUID, c card.Credentials) (card.Sealed, error)
	// Digest returns a keyed hash; label keeps hashes for different purposes
	// apart.
	Digest(label string, data []byte) ([]byte, error)
}
