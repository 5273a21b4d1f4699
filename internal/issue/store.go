package issue

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Store keeps intents. Every method outside Tx is harmless when it runs twice.
// A store out of reach is card.ErrUnavailable.
type Store interface {
	// IssueTx runs f in a transaction; f may run again if the transaction
	// failed to serialise, so it must do nothing else. A lost reply to COMMIT
	// is an error although the transaction may have happened: what f writes is
	// found by its keys.
	IssueTx(ctx context.Context, f func(Tx) error) error

	// ClaimIntents hands out up to n intents, open or pending, that are the
	// claim's supplier's, whose card is paid and whose time has come, each for
	// ttl, and takes the accounts in turn. The claim commits key and supplier,
	// and the time if nobody was asked before. An intent that was asked for
	// before keeps its supplier. It gives up with card.ErrUnavailable if it has
	// to wait for more than seconds.
	ClaimIntents(ctx context.Context, claim Claim, n int, ttl time.Duration) ([]Intent, error)
	// ProlongIntents prolongs claims that were not lost, so that they end ttl
	// from now.
	ProlongIntents(ctx context.Context, intents []Intent, ttl time.Duration) error
	// ExpediteIntents has the pending intents of a supplier that are among those
	// of the cards due now.
	ExpediteIntents(ctx context.Context, supplier string, cards []uuid.UUID) error
	// CardsByUUID returns cards of whatever account, by uuid. It leaves out
	// those whose rows can't be decoded, and reports them.
	CardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error)
	// SaveIntents stores what became of intents whose card is not issued. One
	// whose claim was lost is left as it is.
	SaveIntents(ctx context.Context, intents []Intent) error
}

// Claim says which intents are a supplier's: those that have it already; those
// that have none yet, and whose amount is in one of its shares and in no share
// before that. The first supplier's are also those whose amount is in no share,
// and those that have a supplier without a share: if it may have been asked,
// only once they have been due for a while, in which a process that knows it
// would have claimed them.
type Claim struct {
	Supplier string
	Shares   []Share // of all suppliers, in the order in which they are asked; at least one
}

// Tx is what happens within one transaction.
type Tx interface {
	// LockCardsByUUID returns those of the cards that exist, locked, by uuid.
	// It fails with card.ErrCorrupt if one can't be decoded.
	LockCardsByUUID(ctx context.Context, ids []uuid.UUID) ([]*card.Card, error)
	// SaveIssued ends the intents and stores the credentials. It fails with
	// card.ErrFenced if a claim was lost, with card.ErrDuplicate if another
	// card has the same number.
	SaveIssued(ctx context.Context, cards []IssuedCard) error
	// SaveIntents stores what became of intents whose card is not issued. It
	// fails with card.ErrFenced if a claim was lost.
	SaveIntents(ctx context.Context, intents []Intent) error
	// InsertEvents gives the events their Seq, and makes a delivery to each
	// enabled webhook that wants them.
	InsertEvents(ctx context.Context, es []card.Event) error
}

// Vault encrypts what must not be read from a database.
type Vault interface {
	// SealCredentials encrypts each field on its own, tied to the card.
	SealCredentials(id, account uuid.UUID, c card.Credentials) (card.Sealed, error)
	// Digest returns a keyed hash; label keeps hashes for different purposes
	// apart.
	Digest(label string, data []byte) ([]byte, error)
}
