package operator

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Search selects cards for an operator, of every account.
type Search struct {
	AccountID     uuid.UUID         // zero for all
	State         card.PaymentState // "" for all
	NeedsOperator bool              // only cards that need ResolveCard
	Limit         int
}

// CardDetail is everything stored about a card except its credentials.
type CardDetail struct {
	Card        *card.Card
	Account     string // name
	Transfers   []card.Transfer
	Intent      *IntentRecord // nil before the payment was confirmed
	Credentials bool          // whether any are stored
	Resolutions []Resolution
	Events      []card.Event
}

// RetiredCard is the remainder of an unpaid card that was deleted. Money that
// still arrives at its address is unattributed.
type RetiredCard struct {
	UUID      uuid.UUID
	Account   string
	USD       card.USD
	Amount    card.Amount // its price
	ExpiredAt time.Time   // end of its quote
	DeletedAt time.Time
}

// IntentRecord is the intent to issue a card.
type IntentRecord struct {
	State        string // open, pending, parked, done or refund_due
	Supplier     string // "" if no request was sent
	Reference    string // the supplier's; "" if it sent none
	FirstAskedAt *time.Time
	Answer       string // the supplier's last: issued, pending, declined or unknown; "" if no request was sent
	Attempts     int
	DueAt        time.Time  // of the next attempt, while it is open or pending
	Reason       string     // why the card is not issued yet
	OpenedAt     *time.Time // first claim, or first claim after a retry; nil if there was none
	Refusals     []Refusal  // since OpenedAt, in order
	Declines     int        // by any supplier, never reset; part of the request's key at some suppliers
}

// Refusal is a supplier's refusal to issue a card.
type Refusal struct {
	Supplier  string `json:"supplier"`
	Reason    string `json:"reason"`
	Temporary bool   `json:"temporary"` // it may issue one later
}

// waits reports whether the intent needs an operator: it is parked, or its
// refund is due.
func (r *IntentRecord) waits() bool {
	return r != nil && (r.State == "parked" || r.State == "refund_due")
}

// refundDue reports whether no supplier issues the card.
func (r *IntentRecord) refundDue() bool { return r != nil && r.State == "refund_due" }

// ResolutionKind is the kind of a decision about a card.
type ResolutionKind string

// The decisions. A decision has no effect if nothing is left to decide.
const (
	// Accept makes the received money the card's price: the card is issued once
	// the money is confirmed.
	Accept ResolutionKind = "accept"
	// Refund records that the operator gives the money back, or the surplus of
	// an issued card. Decide it before sending the money: after it, the money
	// no longer pays for the card. A refund of 0 only adds the transaction of
	// the refund before it.
	Refund ResolutionKind = "refund"
	// WriteOff records the loss of money that left the chain after the card was
	// issued, or after the money was given back.
	WriteOff ResolutionKind = "write_off"
	// Retry requests a parked card again from the same supplier with the same
	// key, and a card whose refund is due from every supplier.
	Retry ResolutionKind = "retry"
	// Attribute is an Attribution to the card, among the card's resolutions.
	Attribute ResolutionKind = "attribute"
	// Purge records that the card's credentials were deleted early.
	Purge ResolutionKind = "purge"
)

// Resolution is a stored decision. It is never deleted.
type Resolution struct {
	ID        uuid.UUID
	CardUUID  uuid.UUID
	Kind      ResolutionKind
	Amount    card.Amount // accepted, refunded, written off or attributed; 0 with Retry and Purge
	TxID      string      // of a refund; "" if unknown
	Note      string
	Operator  string
	CreatedAt time.Time
}

var (
	// ErrAnotherAmount means that the amount differs from the one the operator
	// expects.
	ErrAnotherAmount = errors.New("the amount has changed")
	// ErrBeingIssued means that the supplier may have issued the card: its
	// money can't be given back.
	ErrBeingIssued = errors.New("the card is being issued")
	// ErrNotConfirmed means that money may still leave the chain, or can't be
	// spent yet: it must not be given back.
	ErrNotConfirmed = errors.New("the received money is not confirmed, or is locked")
	// ErrLocked means that all received money is still locked by its sender.
	ErrLocked = errors.New("the received money is locked by its sender")
	// ErrIssued means that a card is already issued.
	ErrIssued = errors.New("the card is already issued")
	// ErrNothingLost means that no money left the chain after the card was
	// issued or the money was given back.
	ErrNothingLost = errors.New("no money was lost with the card")
	// ErrNothingReceived means that there is no money to decide about.
	ErrNothingReceived = errors.New("nothing was received for the card")
	// ErrRefunded means that the money was given back.
	ErrRefunded = errors.New("its money was refunded")
	// ErrNotParked means that the card is not waiting for an operator.
	ErrNotParked = errors.New("the card is neither declined nor parked")
)
