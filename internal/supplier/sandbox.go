// Package supplier makes cards, or asks others to.
//
// It may import packages card and issue, and implements issue.Supplier: the same key always yields the same card.
package supplier

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// Sandbox makes cards that are well formed but can never be real. Their numbers begin with 99: major industry identifier 9
// with a country code from 900 to 999 (ISO/IEC 7812-1), which ISO 3166-1 leaves to users and gives to no country.
// It keeps no state: everything is derived from the key, so that a repeated request yields the same card on any replica.
type Sandbox struct {
	now func() time.Time
}

var _ issue.Supplier = (*Sandbox)(nil)

// NewSandbox returns the sandbox's issuer.
func NewSandbox(now func() time.Time) *Sandbox { return &Sandbox{now: now} }

// Issue implements issue.Supplier.
func (s *Sandbox) Issue(_ context.Context, key string, _ card.USD) (card.Credentials, error) {
	body := fmt.Sprintf("99%013d", number(key, "number")%1e13)
	// Months from the key, counted from a fixed year, would expire; counted from now they differ between attempts by at most
	// what the calendar moved, and the first attempt that is stored is the one that counts.
	expires := s.now().UTC().AddDate(3, 0, 0)
	return card.Credentials{
		CardNumber:     card.Secret(body + card.LuhnDigit(body)),
		ExpirationDate: card.Secret(expires.Format("01/06")),
		SecurityCode:   card.Secret(fmt.Sprintf("%03d", number(key, "code")%1000)),
		URL:            card.Secret("https://sandbox.invalid/cards/" + text(key, "url", 16)),
		URLPassword:    card.Secret(text(key, "password", 16)),
	}, nil
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
