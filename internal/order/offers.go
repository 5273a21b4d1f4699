package order

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// offers are the offers of all suppliers, in the order of routing.
type offers struct {
	all    []card.SupplierOffers
	merged []card.Offer
	stale  bool      // all offers have expired
	readAt time.Time // reference time of SupplierOffers.Age
}

var errStaleOffers = errors.New("no worker has refreshed the offers of suppliers for a long time")

// anyAmount returns the offers while no worker has ever stored any: workers of
// older versions store none.
func anyAmount() []card.Offer {
	return []card.Offer{{Min: card.MinUSD, Max: card.MaxUSD, Left: card.Unlimited}}
}

// RefreshOffers reads the offers from the store. Call it every few seconds.
func (s *Service) RefreshOffers(ctx context.Context) error {
	all, err := s.store.Offers(ctx)
	if err != nil {
		s.offers.CompareAndSwap(nil, &offers{stale: true}) // unknown offers are not unlimited offers
		return err
	}
	now := &offers{all: all, stale: true, readAt: s.cfg.Now()}
	var together []card.Offer
	for i, o := range all {
		if o.Age > card.OfferTTL {
			all[i].Offers = nil
		} else {
			now.stale = false
		}
		together = append(together, all[i].Offers...)
	}
	now.merged = card.MergeOffers(card.ClipOffers(together, card.MinUSD, card.MaxUSD))
	if len(all) == 0 && !s.cfg.NeedOffers {
		now = nil
	}
	s.offers.Store(now)
	return nil
}

// ListOffers returns the amounts that can be ordered now, ascending and without
// overlaps.
func (s *Service) ListOffers() []card.Offer {
	now := s.offers.Load()
	if now == nil {
		return anyAmount()
	}
	return now.merged
}

// source is an offer that can fill an order.
type source struct {
	supplier string // whose stock the order reserves; "" if it reserves none
	offer    card.Offer
	sale     *sale // counted against the offer's total; nil if it has none
}

// sources returns the sources that can fill an order, best first.
// The error is card.ErrNoAmount if no supplier offers the amount, and
// card.ErrUnavailable if the offers are unknown. Only the last source can have a
// sale, which the caller must end.
func (s *Service) sources(usd card.USD) ([]source, error) {
	now := s.offers.Load()
	if now == nil {
		return []source{{}}, nil
	}
	if now.stale {
		return nil, card.ErrUnavailable.WithCause(errStaleOffers)
	}
	var from []source
	for _, of := range now.all {
		for _, o := range of.Offers {
			switch {
			case !o.Has(usd):
			case o.Total > 0:
				if one := s.sales.begin(usd, o.Total, now.readAt.Add(-of.Age), s.cfg.Now()); one != nil {
					return append(from, source{sale: one}), nil
				}
			case o.Life == 0:
				return append(from, source{}), nil
			default:
				from = append(from, source{supplier: of.Supplier, offer: o})
			}
		}
	}
	if len(from) == 0 {
		return nil, s.noAmount(usd)
	}
	return from, nil
}

// shownOffers is how many offers an error message lists.
const shownOffers = 20

// noAmount returns card.ErrNoAmount with the amounts that are offered.
func (s *Service) noAmount(usd card.USD) error {
	var texts []string
	for _, o := range s.ListOffers() {
		text := o.Min.String()
		if o.Max != o.Min {
			text += " to " + o.Max.String()
		}
		if o.Min != usd || o.Max != usd { // sold out, but still in memory
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		return card.ErrNoAmount.WithMessage("No card of " + usd.String() +
			" US dollars is available right now, nor of any other amount. Try again later.")
	}
	more := ""
	if len(texts) > shownOffers {
		texts, more = texts[:shownOffers], ", and more"
	}
	return card.ErrNoAmount.WithMessage("No card of " + usd.String() +
		" US dollars is available right now. There are cards of " + strings.Join(texts, ", ") + more +
		` US dollars. "GET /api/offers" lists them all.`)
}
