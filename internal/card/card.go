// Package card is the domain: cards, payments, and the rules by which one leads
// to the other.
//
// It imports none of ours. It has no clock and does no I/O: what it decides
// follows from facts that others read, and commit with the decision, so that
// after a crash the same facts lead to the same decision.
package card

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// The modes of a deployment.
const (
	TestMode = "test"
	LiveMode = "live"
)

// Status is the status of a card, as the contract fixes it.
type Status string

const (
	AwaitingPayment Status = "awaiting_payment"
	Generated       Status = "generated"
)

// Card is a card that was asked for, from the request to the credentials.
type Card struct {
	// What the request and the quote fixed.
	UUID                  uuid.UUID // version 7: its time is CreatedAt
	AccountID             uuid.UUID
	CreatedAt             time.Time
	USD                   USD
	Coin                  Currency
	Amount                Amount // to be paid
	Address               string // where to, this card's alone
	Rate                  Rate
	ExpiresAt             time.Time // of the quote
	ConfirmationsRequired int
	IdempotencyKey        string // "" if the request had none
	RequestHash           []byte // fingerprint of the request, if it had a key

	// What happened since.
	Status    Status
	State     PaymentState
	Received  Amount // sum of the counted transfers
	Settled   Amount // see Assessment.Settled
	Credit    Credit // as it was assessed last
	Height    int64  // see Assessment.Height
	TipHeight int64  // of the chain, when the card was read
	Sealed    *Sealed

	// Refused says that no supplier makes the card: an operator has them asked
	// again, or gives the money back.
	Refused bool

	// RefundAddress is where the customer wants money back; "" if the order
	// named no address. It is set only where Service has opened
	// SealedRefundAddress.
	RefundAddress       Secret
	SealedRefundAddress []byte

	// Reference and Metadata are the client's own data. They are stored and
	// returned unchanged, never interpreted and never logged, and do not change
	// after the card is created. They are set only where clients read cards.
	Reference *Secret // nil if the order had none
	Metadata  Secret  // a JSON object of strings; "" if the order had none

	CanceledAt time.Time // when the client canceled the card, which ended its quote; zero if it did not

	// Transfers are those that are counted, first seen first, but only the
	// largest if there are many; Omitted is how many of them are left out. They
	// are set only where one card is read.
	Transfers []Transfer
	Omitted   int64

	// What operators decided (ResolveCard).
	Accepted   Amount    // so much is enough, whatever was asked for; 0 if nothing was decided
	Refunded   Amount    // was given back
	RefundedAt time.Time // the last time; zero if nothing was
	RefundTxID string    // of the last refund's transaction; "" if the operator named none
	WrittenOff Amount    // of a generated card, is missing and will not be waited for

	// CredentialsPurgedAt is when the credentials were deleted for good; nil if
	// they were not.
	CredentialsPurgedAt *time.Time

	// Tag changes with everything that a client sees of the card, its Transfers
	// included where they are set. It is set only where one card is read, or
	// where it was asked for.
	Tag string

	// Credentials are set only where Service has opened Sealed, once the card
	// is generated.
	Credentials *Credentials
}

// FirstUUID returns the least of the UUIDs version 7 whose time is t or later.
// It is the zero UUID for a time before 1970.
func FirstUUID(t time.Time) (id uuid.UUID) {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	if ms > 0 {
		var bytes [8]byte
		binary.BigEndian.PutUint64(bytes[:], uint64(min(ms, 1<<48-1)))
		copy(id[:], bytes[2:])
	}
	return id
}

// TimeOf returns the time in a UUID version 7, in UTC and with millisecond
// precision.
func TimeOf(id uuid.UUID) time.Time { return time.Unix(id.Time().UnixTime()).UTC() }

// Confirmations returns the confirmations of the transfer that the card waits
// for.
func (c *Card) Confirmations() int64 { return confirmations(c.Height, c.TipHeight) }

// PaymentURI returns the instruction to pay for the card. It is "" once the
// client canceled the card, or an operator gave money back before it was
// issued, so that nobody is invited to pay.
func (c *Card) PaymentURI() string {
	if (c.Refunded > 0 || c.canceled()) && c.Status != Generated {
		return ""
	}
	return c.Coin.PaymentURI(c.Address, c.Amount)
}

// confirmations returns those of a block; 0 for the mempool.
func confirmations(height, tip int64) int64 {
	if height == 0 {
		return 0
	}
	return max(0, tip-height+1)
}

// AsCreated returns the card as it was in the answer to the request that made
// it: unpaid, without credentials.
func (c *Card) AsCreated() *Card {
	created := *c
	created.Status, created.State = AwaitingPayment, Unpaid
	created.Received, created.Settled, created.Height, created.Sealed = 0, 0, 0, nil
	created.Transfers, created.Omitted, created.CredentialsPurgedAt = nil, 0, nil
	created.Accepted, created.Refunded, created.WrittenOff = 0, 0, 0
	created.Refused = false
	created.RefundedAt, created.RefundTxID, created.CanceledAt, created.Tag = time.Time{}, "", time.Time{}, ""
	created.Credit = Credit{Due: c.Amount}
	return &created
}

// RefundAddressField names the refund address where it is encrypted.
const RefundAddressField = "refund_address"

// Mask returns the first and last six characters of an address, by which its
// owner recognises it. It returns "" for "".
func Mask(address Secret) string {
	const shown = 6
	text := address.Reveal()
	switch {
	case text == "":
		return ""
	case len(text) < 4*shown: // is no address of any coin
		return "..."
	}
	return text[:shown] + "..." + text[len(text)-shown:]
}

// Secret is a text that no log, no JSON and no format verb shows.
type Secret string

const redacted = "[redacted]"

func (Secret) String() string               { return redacted }
func (Secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, redacted) }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

// Credentials are what is needed to use a card.
type Credentials struct {
	Masked         bool   // CardNumber, SecurityCode and URLPassword are only hinted at (MaskCredentials)
	CardNumber     Secret // digits
	ExpirationDate Secret // MM/YY
	SecurityCode   Secret // digits
	URL            Secret
	URLPassword    Secret
}

// Sealed are a card's credentials, each field encrypted on its own.
type Sealed struct {
	CardNumber, ExpirationDate, SecurityCode, URL, URLPassword []byte

	LastFour string // digits of the card number, in the clear; "" if they are not known
}
