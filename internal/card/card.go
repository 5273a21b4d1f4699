// Package card is the domain: cards, payments, and the rules that lead from one
// to the other.
//
// It imports no other package of this module. It has no clock and does no I/O:
// its decisions follow from facts that the callers read, and commit together
// with the decision. After a crash, the same facts lead to the same decision.
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

// Status is the status of a card, as the contract defines it.
type Status string

const (
	AwaitingPayment Status = "awaiting_payment"
	Generated       Status = "generated"
)

// Card is a card from the request to the credentials.
type Card struct {
	// Fixed by the request and the quote.
	UUID                  uuid.UUID // version 7: its time is CreatedAt
	AccountID             uuid.UUID
	CreatedAt             time.Time
	USD                   USD
	Coin                  Currency
	Amount                Amount // the price
	Address               string // the payment address, of this card alone
	Rate                  Rate
	ExpiresAt             time.Time // of the quote
	ConfirmationsRequired int
	IdempotencyKey        string // "" without a key
	RequestHash           []byte // fingerprint of a request with a key

	// Changed since.
	Status    Status
	State     PaymentState
	Received  Amount // sum of the counted transfers
	Settled   Amount // see Assessment.Settled
	Credit    Credit // as last assessed
	Height    int64  // see Assessment.Height
	TipHeight int64  // of the chain, when the card was read
	Sealed    *Sealed

	// Refused is set when no supplier makes the card. An operator requests it
	// again or refunds the payment.
	Refused bool

	// RefundAddress is the customer's address for refunds; "" if the order has
	// none. It is set only where Service has opened SealedRefundAddress.
	RefundAddress       Secret
	SealedRefundAddress []byte

	// Reference and Metadata are the client's own data: stored and returned
	// unchanged, never interpreted, never logged. They are set only where
	// clients read cards.
	Reference *Secret // nil if the order had none
	Metadata  Secret  // a JSON object of strings; "" if the order had none

	CanceledAt time.Time // when the client canceled the card, which ended its quote; zero if not canceled

	// Transfers are the counted transfers, first seen first. If there are many,
	// only the largest are listed, and Omitted is the number of the rest. They
	// are set only where one card is read.
	Transfers []Transfer
	Omitted   int64

	// Decided by operators (ResolveCard).
	Accepted   Amount    // enough for the card, regardless of its price; 0 if nothing was decided
	Refunded   Amount    // total of all refunds
	RefundedAt time.Time // time of the last refund; zero without one
	RefundTxID string    // of the last refund; "" if the operator gave none
	WrittenOff Amount    // the part of a generated card's loss that is not waited for

	// CredentialsPurgedAt is when the credentials were deleted permanently; nil
	// if they were not.
	CredentialsPurgedAt *time.Time

	// Tag changes with everything a client sees of the card, including
	// Transfers where they are set. It is set only where one card is read, and
	// in the answer to its request.
	Tag string

	// Credentials are set only where Service has opened Sealed of a generated
	// card.
	Credentials *Credentials
}

// FirstUUID returns the smallest version 7 UUID with time t or later. It is the
// zero UUID for a time before 1970.
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

// TimeOf returns the time in a version 7 UUID, in UTC and with millisecond
// precision.
func TimeOf(id uuid.UUID) time.Time { return time.Unix(id.Time().UnixTime()).UTC() }

// Confirmations returns the confirmations of the transfer that the card waits
// for.
func (c *Card) Confirmations() int64 { return confirmations(c.Height, c.TipHeight) }

// PaymentURI returns the payment instruction for wallets. It is "" after the
// card was canceled, or refunded before it was issued, so that no client offers
// it for payment.
func (c *Card) PaymentURI() string {
	if (c.Refunded > 0 || c.canceled()) && c.Status != Generated {
		return ""
	}
	return c.Coin.PaymentURI(c.Address, c.Amount)
}

// confirmations returns the confirmations of a block at height; 0 for the
// mempool.
func confirmations(height, tip int64) int64 {
	if height == 0 {
		return 0
	}
	return max(0, tip-height+1)
}

// AsCreated returns the card as in the response to its request: unpaid, without
// credentials.
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

// RefundAddressField names the refund address in the associated data of its
// encryption.
const RefundAddressField = "refund_address"

// Mask returns the first and last six characters of an address, enough for its
// owner to recognize it. It returns "" for "".
func Mask(address Secret) string {
	const shown = 6
	text := address.Reveal()
	switch {
	case text == "":
		return ""
	case len(text) < 4*shown: // not an address of any coin
		return "..."
	}
	return text[:shown] + "..." + text[len(text)-shown:]
}

// Secret is a text that logs, JSON and format verbs never show.
type Secret string

const redacted = "[redacted]"

func (Secret) String() string               { return redacted }
func (Secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, redacted) }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

// Credentials are the data needed to use a card.
type Credentials struct {
	Masked         bool   // see MaskCredentials
	CardNumber     Secret // digits
	ExpirationDate Secret // MM/YY
	SecurityCode   Secret // digits
	URL            Secret
	URLPassword    Secret
}

// Sealed holds a card's credentials, each field encrypted separately.
type Sealed struct {
	CardNumber, ExpirationDate, SecurityCode, URL, URLPassword []byte

	LastFour string // digits of the card number, in plain text; "" if unknown
}
