package card

import (
	"time"

	"github.com/google/uuid"
)

// AcceptedRate is the reference that later rates are compared with. Quotes do
// not use it.
type AcceptedRate struct {
	ID       uuid.UUID
	Currency string
	USD      Decimal   // Scale is RateScale
	Source   string    // rate source
	At       time.Time // time of acceptance
	By       string    // process or operator
	Note     string    // the operator's reason; "" for a process
}

// ParkedRate is a rate that no process may accept. Cards of the currency are
// not sold until an operator accepts it, or until the sources return to the
// accepted rate.
type ParkedRate struct {
	Currency string
	USD      Decimal // Scale is RateScale
	Source   string  // rate source
	Why      string
	Since    time.Time // since when the currency's rate is parked
	Until    time.Time // when the process forgets it, unless a source repeats it
	By       string
}
