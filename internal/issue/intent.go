package issue

import (
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// State is the state of an intent.
type State string

// The states of an intent.
const (
	StateOpen      State = "open"       // a request to the supplier is due
	StatePending   State = "pending"    // the supplier accepted the request, and will issue the card or decline
	StateParked    State = "parked"     // an operator must decide
	StateDone      State = "done"       // the card is issued
	StateRefundDue State = "refund_due" // no supplier issues the card: an operator retries or refunds
)

// Intent is the decision to issue a card. The claim commits supplier, key and
// FirstAskedAt before the first request is sent. All times are by the
// database's clock.
type Intent struct {
	CardUUID     uuid.UUID
	State        State
	Supplier     string        // its name
	Key          string        // idempotency key of the request, the same in every attempt
	Reference    string        // the supplier's own; "" if it sent none
	FirstAskedAt time.Time     // first request to Supplier; zero if none was sent
	DecidedAt    time.Time     // when the payment was confirmed; zero if unknown
	OpenedAt     time.Time     // first claim, or first claim after an operator retried
	ClaimedAt    time.Time     // current claim
	Asked        bool          // an earlier attempt sent a request to Supplier, or may have
	Answer       Outcome       // last answer; valid only if Asked
	Refusals     []Refusal     // by earlier suppliers; each is asked once
	Declines     int           // by any supplier, never reset
	Reason       string        // why the card is not issued yet
	Wait         time.Duration // until the next attempt
	Attempts     int           // including the current one
	Fence        int64         // of the claim; the store rejects writes with an older one
}

// IssuedCard is an issued card, ready to be stored.
type IssuedCard struct {
	Intent     Intent
	Sealed     card.Sealed
	NumberHash []byte // keyed
}

// Limits of backoff.
const (
	firstRetry  = time.Second      // longest wait after the first attempt
	firstPoll   = 4 * time.Second  // longest wait after the first pending answer
	longestWait = 10 * time.Minute // between two attempts
)

// maxDeclines is far more often than suppliers decline any card.
const maxDeclines = 1_000_000

// retryLater returns the intent with a backoff that grows with its attempts.
func (i Intent) retryLater(reason string) Intent {
	first := firstRetry
	if i.State == StatePending {
		first = firstPoll
	}
	i.Reason, i.Wait = reason, backoff(first, i.Attempts)
	return i
}

// withoutRequest returns the intent of an attempt that sent no request. If no
// earlier attempt did, FirstAskedAt, which the claim has set, is reset.
func (i Intent) withoutRequest() Intent {
	if !i.Asked {
		i.FirstAskedAt = time.Time{}
	}
	return i
}

// withAnswer returns the intent with the supplier's answer.
func (i Intent) withAnswer(a Answer) Intent {
	// If an operator retries a declined card, an unknown answer does not
	// replace Declined: ask must still recognize the supplier's refusal as the
	// old one.
	retriesDeclined := i.Asked && i.Answer == Declined
	if !retriesDeclined || a.Outcome != Unknown {
		i.Answer = a.Outcome
	}
	i.Asked = true
	if storable(a.Reference) {
		i.Reference = a.Reference
	}
	return i
}

// routedTo returns the intent, due immediately at another supplier.
func (i Intent) routedTo(supplier string) Intent {
	i.State, i.Supplier, i.Reference = StateOpen, supplier, ""
	i.FirstAskedAt, i.Asked, i.Answer = time.Time{}, false, Unknown
	i.Wait = 0
	return i
}

// unrouted returns the intent without supplier and refusals. The next claim
// starts with the first supplier of the routes.
func (i Intent) unrouted() Intent {
	i = i.routedTo("")
	i.Refusals = nil
	return i
}

// reopened returns an intent whose refund was due, for a retry at the supplier
// that declined last.
func (i Intent) reopened() Intent {
	i.State = StateOpen
	i.Refusals = i.Refusals[:max(0, len(i.Refusals)-1)]
	return i
}

// backoff returns the wait after the n-th attempt: a random duration in the
// upper half of first, which doubles with each attempt up to longestWait. The
// jitter keeps cards from retrying in step. An n below 1 is impossible and
// counts as 1.
func backoff(first time.Duration, n int) time.Duration {
	wait := min(first<<min(max(n-1, 0), 20), longestWait)
	return wait/2 + rand.N(wait/2)
}
