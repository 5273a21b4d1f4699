package order

import (
	"slices"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// offersDelay exceeds the time from a worker's sum of the promised cards to the
// date of its offers.
const offersDelay = 10 * time.Second

// sales are the orders of this process that the total of an offer may not
// include yet. A worker takes what is promised out of the total each time it
// reads a balance, so that a sale counts until there are newer offers. Orders
// of other processes do not count until then.
type sales struct {
	mu  sync.Mutex
	all []*sale
}

type sale struct {
	usd    card.USD
	soldAt time.Time // zero while the order is being stored
}

// begin counts an order of usd against the total of offers that were made at a
// time. It returns nil if that is not enough.
func (s *sales) begin(usd, total card.USD, made, now time.Time) *sale {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(x *sale) bool { // offers that do not include it are no longer valid
		return !x.soldAt.IsZero() && now.Sub(x.soldAt) > card.OfferTTL+offersDelay
	})
	for _, x := range s.all {
		if x.soldAt.IsZero() || x.soldAt.After(made.Add(-offersDelay)) {
			total -= x.usd
		}
	}
	if usd > total {
		return nil
	}
	one := &sale{usd: usd}
	s.all = append(s.all, one)
	return one
}

// end ends a sale, which counts no longer unless the card is sold.
func (s *sales) end(one *sale, sold bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.soldAt = now; !sold {
		s.all = slices.DeleteFunc(s.all, func(x *sale) bool { return x == one })
	}
}
