package operator

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// AttributionKind says what an operator decided of a transfer to an address of
// no card.
type AttributionKind string

// The decisions. Each transfer gets one, for good.
const (
	// ToCard counts the transfer toward a card, as if it had been sent to the
	// card's address.
	ToCard AttributionKind = "card"
	// ToNewCard creates a forgotten card again, at the address that the money
	// came to and for all that came there.
	ToNewCard AttributionKind = "new"
	// GiveBack says that the operator gives the money back. This sends nothing.
	GiveBack AttributionKind = "refund"
)

// TransferID names a transfer.
type TransferID struct {
	Currency string
	TxID     string
	Output   int64
}

// Attribution is a decision about a transfer, as it is kept for good.
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

// Arrival is a transfer and what became of it.
type Arrival struct {
	card.Transfer
	CardUUID    uuid.UUID    // the card at its address; zero if there is none
	Attribution *Attribution // nil if nothing was decided
}

var (
	// ErrNoTransfer means that there is no such transfer.
	ErrNoTransfer = errors.New("there is no such transfer")
	// ErrAttributed means that something else was decided of a transfer before.
	ErrAttributed = errors.New("something else was decided of the transfer before")
	// ErrCardAddress means that a transfer came to the address of a card.
	ErrCardAddress = errors.New("the transfer came to the address of a card")
	// ErrLeftChain means that a transfer is no longer in the chain.
	ErrLeftChain = errors.New("the transfer left the chain")
	// ErrAnotherCoin means that a card is to be paid with another coin.
	ErrAnotherCoin = errors.New("the card is to be paid with another coin")
	// ErrPaid means that a card is paid already.
	ErrPaid = errors.New("the card is paid already")
	// ErrNoPrice means that an amount can't be the price of a card.
	ErrNoPrice = errors.New("the amount is too small to be the price of a card")
	// ErrTooManyCoins means that a card would have received more coins than there
	// are.
	ErrTooManyCoins = errors.New("with it, the card would have received more coins than there are")
)
