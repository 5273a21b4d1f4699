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
	NeedsOperator bool              // only cards that wait for ResolveCard
	Limit         int
}

// CardDetail is everything that is kept of a card but its credentials.
type CardDetail struct {
	Card        *card.Card
	Account     string // name
	Transfers   []card.Transfer
	Intent      *IntentRecord // nil before the payment was confirmed
	Credentials bool          // whether any are kept
	Resolutions []Resolution
	Events      []card.Event
}

// RetiredCard is what is known of a card that was deleted because nobody paid
// for it. Money that still comes to its address is unattributed.
type RetiredCard struct {
	UUID      uuid.UUID
	Account   string
	USD       card.USD
	Amount    card.Amount // that was asked for
	ExpiredAt time.Time   // when its quote was over
	DeletedAt time.Time
}

// IntentRecord is how far the issuing of a card is.
type IntentRecord struct {
	State        string // open, pending, parked, done or refund_due
	Supplier     string // "" if nobody was asked
	Reference    string // the supplier's; "" if it gave none
	FirstAskedAt *time.Time
	Answer       string // the supplier's last: issued, pending, declined or unknown; "" if nobody was asked
	Attempts     int
	DueAt        time.Time  // of the next attempt, while it is open or pending
	Reason       string     // why the card is not issued yet
	OpenedAt     *time.Time // since when the suppliers are asked; nil if none was
	Refusals     []Refusal  // by suppliers, in their order, since they are asked
	Declines     int        // how often a supplier refused, ever: a part of what the supplier knows the request by
}

// Refusal is a supplier's answer that it makes no card.
type Refusal struct {
	Supplier  string `json:"supplier"`
	Reason    string `json:"reason"`
	Temporary bool   `json:"temporary"` // it may make one later
}

// waits reports whether the issuing of a card is left to an operator: it is
// parked, or the supplier declined.
func (r *IntentRecord) waits() bool {
	return r != nil && (r.State == "parked" || r.State == "refund_due")
}

// refundDue reports whether no supplier makes a card.
func (r *IntentRecord) refundDue() bool { return r != nil && r.State == "refund_due" }

// ResolutionKind says what an operator decided of a card.
type ResolutionKind string

// The decisions. Where nothing is left to decide, none of them does anything.
const (
	// Accept lets what was received be enough: the card is made once that is
	// confirmed.
	Accept ResolutionKind = "accept"
	// Refund says that the operator gives the money back; once the card is
	// made, the surplus. It is to be decided before anything is sent: from then
	// on the money makes no card. A refund of 0 only names the transaction of
	// the refund before it.
	Refund ResolutionKind = "refund"
	// WriteOff says that the operator bears the loss of money that left the
	// chain after the card was made, or after it was given back.
	WriteOff ResolutionKind = "write_off"
	// Retry has the supplier asked again, with the same key, for a card that is
	// parked, and every supplier for one whose refund is due.
	Retry ResolutionKind = "retry"
	// Attribute is an Attribution to the card, among the card's resolutions.
	Attribute ResolutionKind = "attribute"
	// Purge deleted the card's credentials for good, before their time.
	Purge ResolutionKind = "purge"
)

// Resolution is a decision, as it is kept for good.
type Resolution struct {
	ID        uuid.UUID
	CardUUID  uuid.UUID
	Kind      ResolutionKind
	Amount    card.Amount // accepted, refunded, written off or attributed; 0 with Retry and Purge
	TxID      string      // of a refund; "" if the operator named none
	Note      string
	Operator  string
	CreatedAt time.Time
}

var (
	// ErrAnotherAmount means that a decision is not about the amount that the
	// operator thinks.
	ErrAnotherAmount = errors.New("the amount is another by now")
	// ErrBeingIssued means that the supplier may have made a card: its money
	// can't be given back.
	ErrBeingIssued = errors.New("the card is being issued")
	// ErrNotConfirmed means that money may still leave the chain, or can't be
	// spent yet: it is not to be given back.
	ErrNotConfirmed = errors.New("what was received is not confirmed, or is locked")
	// ErrLocked means that nothing was received but money that can't be spent
	// yet, by the will of its sender.
	ErrLocked = errors.New("what was received is locked by its sender")
	// ErrIssued means that a card is made already.
	ErrIssued = errors.New("the card is made already")
	// ErrNothingLost means that no money of a card has left the chain after it
	// was made or given back.
	ErrNothingLost = errors.New("no money was lost with the card")
	// ErrNothingReceived means that there is no money to decide on.
	ErrNothingReceived = errors.New("nothing was received for the card")
	// ErrRefunded means that the money was given back, so that it buys no card.
	ErrRefunded = errors.New("its money was refunded")
	// ErrNotParked means that the issuing of a card does not wait for an
	// operator.
	ErrNotParked = errors.New("the card is neither declined nor parked")
)
