package card

import (
	"cmp"
	"slices"
	"time"
)

// Offer is an amount, or a range of amounts, that cards can be had for at the
// moment.
type Offer struct {
	Min, Max USD   // inclusive; equal for one amount
	Left     int64 // cards that are left; Unlimited if nobody counts them
	Total    USD   // what all cards of the offer may add up to, such as a balance that pays for them; 0 for no limit
	// Life is set where cards are in a stock of our own: each order reserves
	// one that can be used for at least so long. 0 where orders reserve
	// nothing.
	Life time.Duration
}

// Unlimited is the Left of an offer that does not run out.
const Unlimited int64 = -1

// Has reports whether a card of an amount can be had.
func (o Offer) Has(usd USD) bool { return o.Min <= usd && usd <= o.Max && o.Left != 0 }

// OfferTTL is how long the offers of a supplier that no longer answers are
// believed.
const OfferTTL = 15 * time.Minute

// SupplierOffers is what can be had of one supplier.
type SupplierOffers struct {
	Supplier string
	Priority int           // its place in the order in which suppliers are asked
	Age      time.Duration // since the supplier answered
	Offers   []Offer
}

// ClipOffers returns the part of offers that is between two amounts, both included.
func ClipOffers(offers []Offer, least, most USD) []Offer {
	var clipped []Offer
	for _, o := range offers {
		o.Min, o.Max = max(o.Min, least), min(o.Max, most)
		if o.Min <= o.Max {
			clipped = append(clipped, o)
		}
	}
	return clipped
}

// MergeOffers returns what can be had of several offers together: ascending, without
// overlaps, each with how many cards of any one of its amounts are left.
func MergeOffers(offers []Offer) []Offer {
	var edges []USD // where an offer begins, or the first amount beyond its end
	for _, o := range offers {
		edges = append(edges, o.Min, o.Max+1)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	var merged []Offer
	for i := range max(0, len(edges)-1) {
		part := Offer{Min: edges[i], Max: edges[i+1] - 1}
		for _, o := range offers {
			if !o.Has(part.Min) {
				continue
			}
			if o.Left == Unlimited || part.Left == Unlimited {
				part.Left = Unlimited
			} else {
				part.Left += o.Left
			}
		}
		last := len(merged) - 1
		switch {
		case part.Left == 0:
		case last >= 0 && merged[last].Max+1 == part.Min && merged[last].Left == part.Left:
			merged[last].Max = part.Max
		default:
			merged = append(merged, part)
		}
	}
	return merged
}

// SortByPriority sorts offers in the order in which suppliers are asked.
func SortByPriority(all []SupplierOffers) {
	slices.SortFunc(all, func(a, b SupplierOffers) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Supplier, b.Supplier))
	})
}
