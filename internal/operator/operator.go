// Package operator is what an operator does: it settles what the rules and a
// database that went back leave to people, and adds up the books.
//
// It may import package card only. Every decision is one transaction, and is
// kept for good.
package operator

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Store keeps cards and what was decided of them. A store out of reach is
// card.ErrUnavailable.
type Store interface {
	// OperatorTx runs f in a transaction; f may run again if the transaction
	// failed to serialise, so it must do nothing else. A lost reply to COMMIT
	// is an error although the transaction may have happened: what f writes is
	// found by its keys.
	OperatorTx(ctx context.Context, f func(Tx) error) error
	// ReadBooks adds everything up, as of one moment, from what was kept and
	// what may have changed since; if it is to be full, from all rows, and what
	// was kept is doubted where it differs.
	ReadBooks(ctx context.Context, full bool, progress func(Progress)) (Reading, error)
	// KeepBooks stores what the next reading may believe, unless another
	// reading was kept since this one.
	KeepBooks(ctx context.Context, r Reading) error
	// SealedCards returns what is encrypted of up to n cards from a uuid on, by
	// uuid, without those of which nothing is.
	SealedCards(ctx context.Context, from uuid.UUID, n int) ([]SealedCard, error)
	// SealedCardsOf returns what is encrypted of those of the cards of which
	// something is.
	SealedCardsOf(ctx context.Context, ids []uuid.UUID) ([]SealedCard, error)
}

// Vault decrypts what is encrypted of a card. It returns an error if a field
// was changed, or belongs to another card or field, and card.ErrUnavailable if
// its key is not there.
type Vault interface {
	Open(id, account uuid.UUID, field string, ciphertext []byte) (card.Secret, error)
	OpenCredentials(id, account uuid.UUID, sealed card.Sealed) (card.Credentials, error)
}

// SealedCard is what is encrypted of a card.
type SealedCard struct {
	UUID, AccountID uuid.UUID
	Sealed          *card.Sealed // nil if it has no credentials
	RefundAddress   []byte       // nil if it has none
}

// Tx is what happens within one transaction. The rows it locks are locked in
// the order chain, cards, webhooks, accounts.
type Tx interface {
	// LockChain waits for the end of a pass over a chain, and lets none change
	// its transfers before the transaction ends.
	LockChain(ctx context.Context, currency string) error

	// LockCardsByUUID returns those of the cards that exist, locked, by uuid.
	// It fails with card.ErrCorrupt if one can't be decoded.
	LockCardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error)
	// Tip returns the newest block that was applied; the zero Tip before the
	// first time.
	Tip(ctx context.Context, currency string) (card.Tip, error)

	// TransfersTo returns the counted transfers to addresses, and as such those
	// that are attributed to the cards there; without those that are attributed
	// elsewhere.
	TransfersTo(ctx context.Context, currency string, addresses []string) ([]card.Transfer, error)

	// ReopenIntent has an intent that was declined or parked tried again.
	ReopenIntent(ctx context.Context, id uuid.UUID) error
	// Intent returns how far the issuing of a card is; nil if it was not
	// decided.
	Intent(ctx context.Context, id uuid.UUID) (*IntentRecord, error)
	// HasEvent reports whether the account was told of a kind of event of a card.
	HasEvent(ctx context.Context, id uuid.UUID, kind card.EventType) (bool, error)
	// Resolutions returns what operators decided of a card, oldest first.
	Resolutions(ctx context.Context, id uuid.UUID) ([]Resolution, error)
	// InsertResolution stores what an operator decided, and the decided amounts
	// of the card, which must be locked.
	InsertResolution(ctx context.Context, r Resolution, c *card.Card) error
	// Arrival returns a transfer and what became of it. The error is
	// card.ErrNoRow if there is none.
	Arrival(ctx context.Context, id TransferID) (Arrival, error)
	// InsertCard stores a card at an address that has received money.
	InsertCard(ctx context.Context, c *card.Card) error
	// InsertAttributions stores what an operator decided of transfers. The
	// error is card.ErrDuplicate if one has been attributed.
	InsertAttributions(ctx context.Context, as []Attribution) error
	// SaveVerdicts stores assessments, an intent for each card that is to be
	// issued and has none, and events.
	SaveVerdicts(ctx context.Context, vs []card.Verdict) error
}

// Rates knows today's rates without asking anybody: it answers from memory.
type Rates interface {
	// Rate returns card.ErrNoRate if there is no fresh one.
	Rate(currency string) (card.Rate, error)
}

// Service is what an operator does.
type Service struct {
	store Store
	rates Rates
	log   *slog.Logger
}

// New returns a service.
func New(store Store, rates Rates, log *slog.Logger) *Service {
	return &Service{store: store, rates: rates, log: log}
}
