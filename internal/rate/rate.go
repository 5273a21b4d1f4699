// Package rate provides exchange rates: what coins are worth in US dollars.
//
// It may import packages card and order. It implements the actors' Rates from
// memory, never from the network. Live is the median of several public sources,
// which its Tick fetches. Fixed has rates set by the operator. Markup lowers
// either. Arithmetic is exact, and results are rounded down: a lower rate asks
// for more coin, so that the amount is never worth less than the dollars.
//
// Every process fetches the sources independently of other processes. It
// compares their rates with the rates that any process or operator accepted,
// which are stored in a Book. Stored rates are never quoted. After a crash
// there is no rate before the end of the first Tick, and a jump since the last
// accepted rate is held like any other.
package rate

import (
	"fmt"
	"maps"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// Fixed has rates set by the operator. They are always fresh.
type Fixed struct {
	rates map[string]card.Decimal
	now   func() time.Time
}

var _ order.Rates = (*Fixed)(nil)

// NewFixed returns fixed rates: US dollars per coin, by currency code, as
// decimal numbers with at most 8 decimals. It returns an error if one of them
// is not a positive number.
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
