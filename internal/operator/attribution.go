package operator

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// AttributionKind is the kind of a decision about a transfer to an address
// without a card.
type AttributionKind string

// The decisions. Each transfer gets one, permanently.
const (
	// ToCard counts the transfer toward a card, as if it had been sent to the
	// card's address.
	ToCard AttributionKind = "card"
	// ToNewCard creates a missing card again, at the transfer's address and for
	// all the money there.
	ToNewCard AttributionKind = "new"
	// GiveBack records that the operator gives the money back. It sends
	// nothing.
	GiveBack AttributionKind = "refund"
)

// TransferID identifies a transfer.
type TransferID struct {
	Currency string
	TxID     string
	Output   int64
}

// Attribution is a stored decision about a transfer. It is never deleted.
type Attribution struct {
	TransferID
	ID        uuid.UUID
	Kind      AttributionKind
	CardUUID  uuid.UUID   // zero with GiveBack
	Amount    card.Amount // of the transfer
	Note      string
	Operator  string
	CreatedAt time.Time
}

// Arrival is a transfer with its card or attribution.
type Arrival struct {
	card.Transfer
	CardUUID    uuid.UUID    // the card at its address; zero if there is none
	Attribution *Attribution // nil if undecided
}

var (
	// ErrNoTransfer means that there is no such transfer.
	ErrNoTransfer = errors.New("there is no such transfer")
	// ErrAttributed means that another decision about a transfer exists.
	ErrAttributed = errors.New("another decision about the transfer was made before")
	// ErrCardAddress means that a transfer was sent to the address of a card.
	ErrCardAddress = errors.New("the transfer was sent to the address of a card")
	// ErrLeftChain means that a transfer is no longer in the chain.
	ErrLeftChain = errors.New("the transfer left the chain")
	// ErrAnotherCoin means that a card expects another coin.
	ErrAnotherCoin = errors.New("the card expects another coin")
	// ErrPaid means that a card is already paid.
	ErrPaid = errors.New("the card is already paid")
	// ErrNoPrice means that an amount can't be the price of a card.
	ErrNoPrice = errors.New("the amount is too small to be the price of a card")
	// ErrTooManyCoins means that a card would have received more coins than
	// exist.
	ErrTooManyCoins = errors.New("with it, the card would have received more coins than exist")
)
