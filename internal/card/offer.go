package card

// Offer is an amount, or a range of amounts, that cards can be had for at the moment.
type Offer struct {
	Min, Max USD   // inclusive; equal for one amount
	Left     int64 // cards that are left; Unlimited if nobody counts them
}

// Unlimited is the Left of an offer that does not run out.
const Unlimited int64 = -1

// Has reports whether a card of an amount can be had.
func (o Offer) Has(usd USD) bool { return o.Min <= usd && usd <= o.Max && o.Left != 0 }
