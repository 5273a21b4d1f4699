package issue

import (
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// State says how far the issuing of a card is.
type State string

// The states.
const (
	StateOpen      State = "open"       // the supplier is to be asked
	StatePending   State = "pending"    // the supplier will issue the card later, or decline it
	StateParked    State = "parked"     // left to an operator
	StateDone      State = "done"       // the card is issued
	StateRefundDue State = "refund_due" // the supplier declined: an operator retries or refunds
)

// Intent is the decision to issue a card. The claim commits whom to ask, with
// which key and since when, before anybody is asked.
type Intent struct {
	CardUUID     uuid.UUID
	State        State
	Supplier     string    // its name
	Key          string    // the same in every attempt
	Reference    string    // the supplier's; "" if it gave none
	FirstAskedAt time.Time // by the database's clock; zero if nobody was asked
	DecidedAt    time.Time // by the same clock: when the payment was found to be confirmed; zero if that is not known
	OpenedAt     time.Time // by the same clock: when it was first claimed, or first since an operator retried
	ClaimedAt    time.Time // by the same clock
	Asked        bool      // before this attempt, or by one that was cut off
	Answer       Outcome   // the last one; meaningless unless Asked
	Refusals     []Refusal // of the suppliers that were asked before this one; each is asked once
	Declines     int       // how often a supplier refused, ever
	Reason       string    // why the card is not issued yet
	Wait         time.Duration
	Attempts     int   // this one included
	Fence        int64 // of the claim; a write with an older one is refused
}

// IssuedCard is a card as it is stored.
type IssuedCard struct {
	Intent     Intent
	Sealed     card.Sealed
	NumberHash []byte // keyed
}

const (
	firstRetry  = time.Second      // at most, after the first attempt
	firstPoll   = 4 * time.Second  // at most, after the first answer that a card is pending
	longestWait = 10 * time.Minute // between two attempts
)

// maxDeclines is far more often than suppliers decline any card.
const maxDeclines = 1_000_000

// retryLater returns the intent with a time for the next attempt.
func (i Intent) retryLater(reason string) Intent {
	i.Reason, i.Wait = reason, backoff(firstRetry, i.Attempts)
	if i.State == StatePending {
		i.Wait = backoff(firstPoll, i.Attempts)
	}
	return i
}

// withoutRequest takes back what the claim committed, if nobody was asked in this
// attempt nor before.
func (i Intent) withoutRequest() Intent {
	if !i.Asked {
		i.FirstAskedAt = time.Time{}
	}
	return i
}

// withAnswer returns the intent with an answer noted.
func (i Intent) withAnswer(a Answer) Intent {
	// A card that was declined is asked for again because an operator said so.
	// That stays known until there is a clear answer.
	if !i.Asked || i.Answer != Declined || a.Outcome != Unknown {
		i.Answer = a.Outcome
	}
	i.Asked = true
	if storable(a.Reference) {
		i.Reference = a.Reference
	}
	return i
}

// routedTo returns the intent as it is to be asked of another supplier, at once.
func (i Intent) routedTo(supplier string) Intent {
	i.State, i.Supplier, i.Reference, i.FirstAskedAt, i.Asked, i.Answer, i.Wait = StateOpen, supplier, "", time.Time{},
		false, Unknown, 0
	return i
}

// unrouted returns the intent as it is to be asked of whichever supplier is
// the first then.
func (i Intent) unrouted() Intent {
	i = i.routedTo("")
	i.Refusals = nil
	return i
}

// reopened returns an intent whose refund was due as it is to be asked again of
// the same supplier.
func (i Intent) reopened() Intent {
	i.State = StateOpen
	i.Refusals = i.Refusals[:max(0, len(i.Refusals)-1)]
	return i
}

// backoff returns how long to wait after the n-th attempt: it doubles from
// first, with full jitter in its upper half. An n below 1 is impossible and
// counts as 1.
func backoff(first time.Duration, n int) time.Duration {
	wait := min(first<<min(max(n-1, 0), 20), longestWait)
	return wait/2 + rand.N(wait/2)
}
