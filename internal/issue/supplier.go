package issue

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cardmint/cardmint/internal/card"
)

// Supplier issues cards. Repeated requests with the same key yield the same
// card within KeyRetention. It is safe for concurrent use.
type Supplier interface {
	// Name is stored with every intent. It never changes.
	Name() string
	// KeyRetention returns how long after the first Submit the same key is
	// guaranteed to yield the same card; 0 means forever.
	KeyRetention() time.Duration
	// Submit requests a card. After an error, and after Unknown, the card may
	// have been issued.
	Submit(ctx context.Context, r Request) (Answer, error)
	// Lookup returns the supplier's answer to an earlier request. Unknown means
	// that the supplier does not know the request. An error means nothing.
	Lookup(ctx context.Context, r Request) (Answer, error)
}

// Request identifies a card to a supplier.
type Request struct {
	Key       string // ours, the same in every attempt
	Reference string // the supplier's; "" if it sent none
	USD       card.USD
	// Declines counts clear refusals by any supplier. For a supplier that repeats
	// its refusal for a known key, an adapter can add this number to the key.
	Declines int
}

// Answer is a supplier's answer to a request.
type Answer struct {
	Outcome     Outcome
	Reference   string           // of the supplier; may be ""
	Credentials card.Credentials // if Issued
	USD         card.USD         // if Issued: face value; 0 if the answer does not contain it
	Flaw        string           // if Issued: why the card is unusable, such as another currency; "" if it is fine
	Reason      string           // if Declined: the same text for the same cause, shown to operators
	Temporary   bool             // if Declined: a later request may succeed, for example once there is new stock
}

// BusyError means that a supplier rejected a request unread and wants no
// requests for a while: it answered 429, or is under maintenance.
type BusyError struct {
	After time.Duration // until the next request; 0 if unknown
	Cause string        // Defaults to "the supplier is busy".
}

func (e *BusyError) Error() string { return cmp.Or(e.Cause, "the supplier is busy") }

// clear returns the answer, or an error if its outcome is Unknown or invalid.
func (a Answer) clear() (Answer, error) {
	switch a.Outcome {
	case Issued, Pending, Declined:
		return a, nil
	}
	return Answer{}, fmt.Errorf("the answer is %s", a.Outcome)
}

// Outcome is the outcome of a request. The zero Outcome is Unknown.
type Outcome int

// The outcomes.
const (
	Unknown  Outcome = iota
	Issued           // the answer contains the credentials
	Pending          // the card will be issued or declined later
	Declined         // no card was issued, and none will be unless it is submitted again
)

func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Issued:
		return "issued"
	case Pending:
		return "pending"
	case Declined:
		return "declined"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// maxTextBytes limits texts from suppliers.
const maxTextBytes = 200

// clean returns a supplier's text, safe to store, log and show: anything that
// may be a card number is redacted.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	text = card.Redact(text)
	return strings.ToValidUTF8(text[:min(len(text), maxTextBytes)], "")
}

// storable reports whether a supplier's reference can be stored. Others are
// ignored: the key identifies the request too.
func storable(reference string) bool {
	return reference != "" && len(reference) <= maxTextBytes && utf8.ValidString(reference) &&
		strings.IndexFunc(reference, unicode.IsControl) < 0
}
