package order

import (
	"slices"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// offersDelay exceeds the time between a worker's query of the promised cards
// and the date of its offers.
const offersDelay = 10 * time.Second

// sales are the orders of this process that an offer's total may not include
// yet. A worker subtracts promised cards from the total whenever it reads a
// supplier's balance, so a sale counts until there are newer offers. Orders of
// other processes count from then on.
type sales struct {
	mu  sync.Mutex
	all []*sale
}

type sale struct {
	usd    card.USD
	soldAt time.Time // zero while the order is being stored
}

// begin counts an order of usd against the total of an offer that was made at a
// time. It returns nil if the total does not suffice.
func (s *sales) begin(usd, total card.USD, made, now time.Time) *sale {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(x *sale) bool { // all valid offers include it
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

// end ends a sale. Unless the card is sold, it no longer counts.
func (s *sales) end(one *sale, sold bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.soldAt = now; !sold {
		s.all = slices.DeleteFunc(s.all, func(x *sale) bool { return x == one })
	}
}
