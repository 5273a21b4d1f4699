package card

import (
	"cmp"
	"slices"
	"time"
)

// Offer is an amount, or a range of amounts, of cards that are available now.
type Offer struct {
	Min, Max USD   // inclusive; equal for one amount
	Left     int64 // remaining cards; Unlimited if they are not counted
	Total    USD   // limit for the sum of all cards, such as a prepaid balance; 0 for no limit
	// Life is set for cards in our own stock: each order reserves a card that
	// stays valid for at least Life. It is 0 if orders reserve nothing.
	Life time.Duration
}

// Unlimited is the Left of an offer that does not run out.
const Unlimited int64 = -1

// Has reports whether a card of the amount is available.
func (o Offer) Has(usd USD) bool { return o.Min <= usd && usd <= o.Max && o.Left != 0 }

// OfferTTL is how long a supplier's last offers stay valid while it does not
// respond.
const OfferTTL = 15 * time.Minute

// SupplierOffers are the offers of one supplier.
type SupplierOffers struct {
	Supplier string
	Priority int           // its place in the order of suppliers
	Age      time.Duration // since the supplier's response
	Offers   []Offer
}

// ClipOffers returns the part of offers from least to most, both included.
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

// MergeOffers combines offers into ascending ranges without overlaps. Left is
// the number of cards available for any one amount of the range.
func MergeOffers(offers []Offer) []Offer {
	var edges []USD // first amounts of offers, and the amounts after their ends
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

// SortByPriority sorts offers by the order of their suppliers.
func SortByPriority(all []SupplierOffers) {
	slices.SortFunc(all, func(a, b SupplierOffers) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Supplier, b.Supplier))
	})
}
