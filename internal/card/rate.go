package card

import (
	"time"

	"github.com/google/uuid"
)

// AcceptedRate is a rate that was believed. Nothing is quoted from it: it is
// what later rates are compared with.
type AcceptedRate struct {
	ID       uuid.UUID
	Currency string
	USD      Decimal   // Scale is RateScale
	Source   string    // who said so
	At       time.Time // when it was accepted
	By       string    // the process, or the operator
	Note     string    // why an operator accepted it; "" if a process did, by the rules
}

// ParkedRate is a rate that a process may not accept by itself. No card of that
// currency is sold until an operator accepts it, or the sources go back to what
// was accepted before.
type ParkedRate struct {
	Currency string
	USD      Decimal // Scale is RateScale
	Source   string  // who says so
	Why      string
	Since    time.Time // since when rates of the currency are parked
	Until    time.Time // when the process will have forgotten it, unless it is said again
	By       string    // the process
}
