package rate

import (
	"github.com/cardmint/cardmint/internal/card"
)

// Acceptable returns the parked rate that an operator accepts who was told usd.
// The market moves on meanwhile, so it may be up to 3 percent away. If none is
// that near, the operator must look again: it is false.
func Acceptable(waiting []card.ParkedRate, usd card.Decimal) (card.ParkedRate, bool) {
	for _, p := range waiting {
		if usd.Scale == card.RateScale && !farther(usd.Units, p.USD.Units, card.Decimal{Units: 3}) {
			return p, true
		}
	}
	return card.ParkedRate{}, false
}
