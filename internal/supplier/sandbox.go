// Package supplier makes cards, or asks others to.
//
// It may import packages card and issue, and implements issue.Supplier: the
// same key always yields the same card. It stores nothing: after a crash the
// caller looks up what became of its requests.
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

// Behaviour is how the sandbox answers, so that whoever integrates sees every
// way in which a card can be issued, or not.
type Behaviour string

// The behaviours.
const (
	Prompt    Behaviour = "prompt"    // the card is issued at once
	Slow      Behaviour = "slow"      // every answer takes two seconds
	Delayed   Behaviour = "pending"   // the card is pending at first, and issued after three seconds
	Ambiguous Behaviour = "ambiguous" // the card is made, but submitting it fails; looking it up finds it
	Declining Behaviour = "declining" // no card is issued
)

const (
	slowness = 2 * time.Second // of an answer, if Slow
	delay    = 3 * time.Second // of a card, if Delayed
)

// Sandbox makes cards that are well formed but can never be real. Their numbers
// begin with 99: major industry identifier 9 with a country code from 900 to
// 999 (ISO/IEC 7812-1), which ISO 3166-1 leaves to users and gives to no
// country. It keeps no state: everything is derived from the key, so that every
// request for it yields the same card on any replica.
type Sandbox struct {
	name      string
	behaviour Behaviour
	now       func() time.Time
}

var _ issue.Supplier = (*Sandbox)(nil)

// Behaviours returns all of them.
func Behaviours() []Behaviour { return []Behaviour{Prompt, Slow, Delayed, Ambiguous, Declining} }

// NewSandbox returns a supplier of sandbox cards.
func NewSandbox(name string, behaviour Behaviour, now func() time.Time) *Sandbox {
	return &Sandbox{name: name, behaviour: behaviour, now: now}
}

// Name implements issue.Supplier.
func (s *Sandbox) Name() string { return s.name }

// Offers returns what can be had: every amount that cards are sold for.
func (s *Sandbox) Offers(context.Context) ([]card.Offer, error) {
	return []card.Offer{{Min: card.MinUSD, Max: card.MaxUSD, Left: card.Unlimited}}, nil
}

// KeyRetention implements issue.Supplier.
func (s *Sandbox) KeyRetention() time.Duration { return 0 }

// Submit implements issue.Supplier.
func (s *Sandbox) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	switch s.behaviour {
	case Delayed:
		return issue.Answer{Outcome: issue.Pending, Reference: referenceOf(s.now())}, nil
	case Ambiguous:
		return issue.Answer{}, errors.New("the sandbox made the card and lost the answer, as it was told to")
	}
	return s.answer(ctx, r)
}

// Lookup implements issue.Supplier. The sandbox knows every key; only of a
// pending card it must be told since when.
func (s *Sandbox) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	if s.behaviour == Delayed {
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
	switch s.behaviour {
	case Declining:
		return issue.Answer{Outcome: issue.Declined, Reason: "the sandbox declines, as it was told to"}, nil
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

// SandboxCard returns the card that belongs to a key. At the time now it is
// good for three years.
//
// Months from the key, counted from a fixed year, would expire; counted from
// now they differ between attempts by at most what the calendar moved, and the
// first attempt that is stored is the one that counts.
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
