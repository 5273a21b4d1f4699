// Package operator does the work of an operator: it decides about cards and
// transfers that need a person, and reconciles the books.
//
// It may import package card only. Every decision is one transaction, and its
// record is kept permanently.
package operator

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Store stores cards and decisions. The error is card.ErrUnavailable if the
// database can't be reached.
type Store interface {
	// OperatorTx runs f in a transaction. f may run again after a serialization
	// failure, so it must have no other effect. After an error the transaction
	// may still have been committed, if the reply to COMMIT was lost: look its
	// rows up by their keys.
	OperatorTx(ctx context.Context, f func(Tx) error) error
	// ReadBooks sums up one snapshot: stored sums plus the rows that may have
	// changed since. If full is set, it reads all rows, and reports stored sums
	// that differ as discrepancies.
	ReadBooks(ctx context.Context, full bool, progress func(Progress)) (Reading, error)
	// KeepBooks stores a reading's sums for the next one, unless another
	// reading was stored since.
	KeepBooks(ctx context.Context, r Reading) error
	// SealedCards returns the encrypted fields of up to n cards, by uuid,
	// starting at from. It omits cards without any.
	SealedCards(ctx context.Context, from uuid.UUID, n int) ([]SealedCard, error)
	// SealedCardsOf returns the encrypted fields of the given cards. It omits
	// cards without any.
	SealedCardsOf(ctx context.Context, ids []uuid.UUID) ([]SealedCard, error)
}

// Vault decrypts the fields of cards. It returns an error if a field was
// changed, or belongs to another card or field, and card.ErrUnavailable if its
// key is missing.
type Vault interface {
	Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error)
	OpenCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error)
}

// SealedCard is the encrypted fields of a card.
type SealedCard struct {
	UUID, AccountID uuid.UUID
	Sealed          *card.Sealed // nil if it has no credentials
	RefundAddress   []byte       // nil if it has none
}

// Tx is a transaction. Rows are locked in the order chain, cards, webhooks,
// accounts.
type Tx interface {
	// LockChain waits for the end of a pass over a chain, and blocks further
	// passes until the transaction ends.
	LockChain(ctx context.Context, currency string) error

	// LockCardsByUUID locks and returns the cards that exist, by uuid. The
	// error is card.ErrCorrupt if one can't be decoded.
	LockCardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error)
	// Tip returns the newest applied block; the zero Tip before the first pass.
	Tip(ctx context.Context, currency string) (card.Tip, error)

	// TransfersTo returns the counted transfers of addresses. Transfers that
	// are attributed to a card count at the card's address, and not at their
	// own.
	TransfersTo(ctx context.Context, currency string, addresses []string) ([]card.Transfer, error)

	// ReopenIntent opens a parked or declined intent for another attempt.
	ReopenIntent(ctx context.Context, id uuid.UUID) error
	// Intent returns the intent to issue a card; nil if there is none.
	Intent(ctx context.Context, id uuid.UUID) (*IntentRecord, error)
	// HasEvent reports whether a card has an event of a type.
	HasEvent(ctx context.Context, id uuid.UUID, kind card.EventType) (bool, error)
	// Resolutions returns the decisions about a card, oldest first.
	Resolutions(ctx context.Context, id uuid.UUID) ([]Resolution, error)
	// InsertResolution stores a decision, and the decided amounts of the card,
	// which must be locked.
	InsertResolution(ctx context.Context, r Resolution, c *card.Card) error
	// Arrival returns a transfer with its card and attribution. The error is
	// card.ErrNoRow if there is none.
	Arrival(ctx context.Context, id TransferID) (Arrival, error)
	// InsertCard stores a card at an address that has received money.
	InsertCard(ctx context.Context, c *card.Card) error
	// InsertAttributions stores attributions. The error is card.ErrDuplicate if
	// a transfer is already attributed.
	InsertAttributions(ctx context.Context, as []Attribution) error
	// SaveVerdicts stores assessments and events, and creates the missing
	// intents of cards that became ready to issue.
	SaveVerdicts(ctx context.Context, vs []card.Verdict) error
}

// Rates returns current rates from memory.
type Rates interface {
	// Rate returns card.ErrNoRate if there is no fresh rate.
	Rate(currency string) (card.Rate, error)
}

// Service executes the decisions of operators.
type Service struct {
	store Store
	rates Rates
	log   *slog.Logger
}

// New returns a service.
func New(store Store, rates Rates, log *slog.Logger) *Service {
	return &Service{store: store, rates: rates, log: log}
}
