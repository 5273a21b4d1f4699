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

// Supplier makes cards. The same key always yields the same card, however often
// it is submitted, for as long as KeyRetention says. It is safe for concurrent
// use.
type Supplier interface {
	// Name is stored with every intent. It never changes.
	Name() string
	// KeyRetention returns for how long after the first Submit the same key
	// surely yields the same card; 0 means for ever.
	KeyRetention() time.Duration
	// Submit asks for a card. After an error, and after Unknown, the card may
	// have been made.
	Submit(ctx context.Context, r Request) (Answer, error)
	// Lookup returns what became of a request. Unknown means that the supplier
	// does not know the request. After an error nothing is known.
	Lookup(ctx context.Context, r Request) (Answer, error)
}

// Request identifies a card to a supplier.
type Request struct {
	Key       string // ours, the same in every attempt
	Reference string // the supplier's; "" if it gave none
	USD       card.USD
	// Declines counts how often suppliers clearly declined to make this card.
	// It grows only after such an answer, so that a supplier which answers a
	// repeated key with its earlier refusal can be given a key that has the
	// number in it.
	Declines int
}

// Answer is what a supplier says of a request.
type Answer struct {
	Outcome     Outcome
	Reference   string           // of the supplier; may be ""
	Credentials card.Credentials // if Issued
	USD         card.USD         // if Issued: what the card is worth; 0 if the supplier does not say
	// if Issued: why the card must not be given out, for example another
	// currency; "" if nothing is wrong
	Flaw      string
	Reason    string // if Declined: the same text for the same cause. It is shown to operators.
	Temporary bool   // if Declined: a later request may succeed, for example once there is new stock
}

// BusyError means that a supplier took no request, and wants none for a while:
// it answered 429, or is being maintained.
type BusyError struct {
	After time.Duration // until it may be asked again; 0 if it did not say
	Cause string        // why nothing was taken. Defaults to "the supplier is busy".
}

func (e *BusyError) Error() string { return cmp.Or(e.Cause, "the supplier is busy") }

// clear returns the answer, or an error if it leaves open whether a card was
// made.
func (a Answer) clear() (Answer, error) {
	switch a.Outcome {
	case Issued, Pending, Declined:
		return a, nil
	}
	return Answer{}, fmt.Errorf("the answer is %s", a.Outcome)
}

// Outcome is what became of a request. The zero Outcome is Unknown.
type Outcome int

// The outcomes.
const (
	Unknown  Outcome = iota
	Issued           // the answer has the credentials
	Pending          // the card will be issued or declined later
	Declined         // no card was made, and none will be unless it is submitted again
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

// maxTextBytes is how much is kept of a text that a supplier chose.
const maxTextBytes = 200

// clean makes a supplier's text fit to be stored, logged and shown. Whatever
// may be a card number is left out.
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

// storable reports whether a supplier's reference can be kept. One that can't
// is ignored: the key identifies the request too.
func storable(reference string) bool {
	return reference != "" && len(reference) <= maxTextBytes && utf8.ValidString(reference) &&
		strings.IndexFunc(reference, unicode.IsControl) < 0
}
