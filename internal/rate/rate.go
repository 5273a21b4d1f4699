// Package rate provides exchange rates: what coins are worth in US dollars.
//
// It may import packages card and order, and implements the actors' Rates from
// memory, never from the network. Live takes the median of several public
// sources, which its Tick asks. Fixed has the rates that the operator set.
// Markup lowers either. Arithmetic is exact, and results are rounded down: a
// lower rate asks for more coin, so that the amount is never worth less than
// the dollars.
//
// Every process asks the sources for itself, so that none depends on another,
// and compares their rates with what any process has accepted: a Book keeps
// that, and what operators accepted. What is stored is never quoted. After a
// crash there is no rate until the first Tick has ended, and a jump since the
// last accepted rate is held like any other.
package rate

import (
	"fmt"
	"maps"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// Fixed has rates that the operator set. They are always fresh.
type Fixed struct {
	rates map[string]card.Decimal
	now   func() time.Time
}

var _ order.Rates = (*Fixed)(nil)

// NewFixed returns fixed rates: US dollars per coin, by currency code, as
// decimal numbers with at most 8 decimals. It returns an error if one of them
// is not a number above 0.
func NewFixed(usdPerCoin map[string]string, now func() time.Time) (*Fixed, error) {
	f := &Fixed{rates: map[string]card.Decimal{}, now: now}
	for code, text := range maps.All(usdPerCoin) {
		rate, err := card.ParseDecimal(text, card.RateScale)
		if err != nil {
			return nil, fmt.Errorf("rate of %s: %q %w", code, text, err)
		}
		if rate.Units == 0 {
			return nil, fmt.Errorf("rate of %s: must be more than 0", code)
		}
		f.rates[code] = rate
	}
	return f, nil
}

// Rate implements order.Rates.
func (f *Fixed) Rate(currency string) (card.Rate, error) {
	usd, known := f.rates[currency]
	if !known {
		return card.Rate{}, card.ErrNoRate
	}
	return card.Rate{USD: usd, At: f.now(), Source: "fixed"}, nil
}
