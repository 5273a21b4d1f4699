// Package supplier implements the suppliers of cards: sandbox, stock, Stripe and
// HTTP.
//
// It may import packages card and issue, and implements issue.Supplier: the same
// key always yields the same card. It stores nothing: after a crash the caller
// looks up its requests.
package supplier

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// Behavior is how the sandbox answers. The behaviors let integrators test every
// outcome of a request.
type Behavior string

// The behaviors.
const (
	Prompt    Behavior = "prompt"    // the card is issued immediately
	Slow      Behavior = "slow"      // every answer takes two seconds
	Delayed   Behavior = "pending"   // the card is pending for three seconds, then issued
	Ambiguous Behavior = "ambiguous" // the card is issued, but submit fails; lookup finds it
	Declining Behavior = "declining" // no card is issued
)

const (
	slowness = 2 * time.Second // of Slow
	delay    = 3 * time.Second // of Delayed
)

// Sandbox issues cards that are well formed but can never be real. Their numbers
// begin with 99: major industry identifier 9 with a country code from 900 to 999
// (ISO/IEC 7812-1), which ISO 3166-1 reserves for users. Sandbox has no state: a
// card is derived from its key, so every replica returns the same card.
type Sandbox struct {
	name     string
	behavior Behavior
	now      func() time.Time
}

var _ issue.Supplier = (*Sandbox)(nil)

// Behaviors returns all behaviors.
func Behaviors() []Behavior { return []Behavior{Prompt, Slow, Delayed, Ambiguous, Declining} }

// NewSandbox returns a supplier of sandbox cards.
func NewSandbox(name string, behavior Behavior, now func() time.Time) *Sandbox {
	return &Sandbox{name: name, behavior: behavior, now: now}
}

// Name implements issue.Supplier.
func (s *Sandbox) Name() string { return s.name }

// Offers returns one offer with every amount that cards are sold for.
func (s *Sandbox) Offers(context.Context) ([]card.Offer, error) {
	return []card.Offer{{Min: card.MinUSD, Max: card.MaxUSD, Left: card.Unlimited}}, nil
}

// KeyRetention implements issue.Supplier.
func (s *Sandbox) KeyRetention() time.Duration { return 0 }

// Submit implements issue.Supplier.
func (s *Sandbox) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	switch s.behavior {
	case Delayed:
		return issue.Answer{Outcome: issue.Pending, Reference: referenceOf(s.now())}, nil
	case Ambiguous:
		return issue.Answer{}, errors.New("the sandbox issued the card and dropped the answer as configured")
	}
	return s.answer(ctx, r)
}

// Lookup implements issue.Supplier. The sandbox knows every key. The time of a
// pending request is part of its reference.
func (s *Sandbox) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	if s.behavior == Delayed {
		switch submitted, known := submittedAt(r.Reference); {
		case !known:
			return issue.Answer{}, nil
		case s.now().Before(submitted.Add(delay)):
			return issue.Answer{Outcome: issue.Pending, Reference: r.Reference}, nil
		}
	}
	return s.answer(ctx, r)
}

func (s *Sandbox) answer(ctx context.Context, r issue.Request) (issue.Answer, error) {
	switch s.behavior {
	case Declining:
		return issue.Answer{Outcome: issue.Declined, Reason: "the sandbox declines as configured"}, nil
	case Slow:
		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			return issue.Answer{}, ctx.Err()
		}
	}
	return issue.Answer{Outcome: issue.Issued, Reference: r.Reference, Credentials: SandboxCard(r.Key, s.now())}, nil
}

const (
	sandboxName     = "sandbox"
	referencePrefix = sandboxName + "-"
)

func referenceOf(submitted time.Time) string {
	return referencePrefix + strconv.FormatInt(submitted.UnixMilli(), 10)
}

func submittedAt(reference string) (time.Time, bool) {
	digits, ours := strings.CutPrefix(reference, referencePrefix)
	ms, err := strconv.ParseInt(digits, 10, 64)
	return time.UnixMilli(ms), ours && err == nil
}

// SandboxCard returns the card of a key, valid for three years from now.
//
// An expiry derived from the key alone would be in the past one day. An expiry
// relative to now may differ between attempts, but only the first stored one
// counts.
func SandboxCard(key string, now time.Time) card.Credentials {
	body := fmt.Sprintf("99%013d", number(key, "number")%1e13)
	return card.Credentials{
		CardNumber:     card.Secret(body + card.LuhnDigit(body)),
		ExpirationDate: card.Secret(now.UTC().AddDate(3, 0, 0).Format("01/06")),
		SecurityCode:   card.Secret(fmt.Sprintf("%03d", number(key, "code")%1000)),
		URL:            card.Secret("https://sandbox.invalid/cards/" + text(key, "url", 16)),
		URLPassword:    card.Secret(text(key, "password", 16)),
	}
}

func derive(key, what string) []byte {
	h := hmac.New(sha256.New, []byte("cardmint sandbox "+what))
	h.Write([]byte(key))
	return h.Sum(nil)
}

func number(key, what string) uint64 { return binary.BigEndian.Uint64(derive(key, what)) }

func text(key, what string, n int) string {
	return strings.ToLower(base32.StdEncoding.EncodeToString(derive(key, what)))[:n]
}
