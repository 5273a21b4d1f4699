package rate

import "github.com/cardmint/cardmint/internal/card"

// Acceptable returns the parked rate that an operator accepts by naming usd.
// The market moves in between, so the two may differ by up to 3 percent. It
// returns false if no parked rate is that close.
func Acceptable(waiting []card.ParkedRate, usd card.Decimal) (card.ParkedRate, bool) {
	for _, p := range waiting {
		if usd.Scale == card.RateScale && !farther(usd.Units, p.USD.Units, card.Decimal{Units: 3}) {
			return p, true
		}
	}
	return card.ParkedRate{}, false
}
