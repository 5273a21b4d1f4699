package issue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Offering is a supplier that can list the cards it sells.
type Offering interface {
	Supplier
	Offers(ctx context.Context) ([]card.Offer, error)
}

// OfferStore stores the offers of suppliers. Every method is harmless when it
// runs twice.
type OfferStore interface {
	// SaveOffers replaces the offers of a supplier. Their age starts at 0;
	// their Age is not stored.
	SaveOffers(ctx context.Context, o card.SupplierOffers) error
	// PromisedUSD returns the sum of the cards from least to most that may
	// still be paid, or are paid and not issued. It excludes cards with a
	// reserved stock item, and cards whose refund is due.
	PromisedUSD(ctx context.Context, least, most card.USD) (card.USD, error)
	// KeepOffers keeps the offers of a supplier, and lets them age.
	KeepOffers(ctx context.Context, supplier string, priority int) error
	// DeleteOffers deletes the offers of all suppliers except the named ones.
	// At least one must be named.
	DeleteOffers(ctx context.Context, except []string) error
}

// offersTimeout limits a request for offers.
const offersTimeout = 15 * time.Second

// Offers refreshes the stored offers of one supplier.
type Offers struct {
	store    OfferStore
	supplier Offering
	routes   Routes
	index    int
}

// NewOffers returns the Offers of the supplier of routes[index]. It returns an
// error if that supplier is not an Offering.
func NewOffers(store OfferStore, routes Routes, index int) (*Offers, error) {
	s, ok := routes[index].Supplier.(Offering)
	if !ok {
		return nil, fmt.Errorf("supplier %s has no offers", routes[index].Supplier.Name())
	}
	return &Offers{store, s, routes, index}, nil
}

// Tick requests the supplier's offers, and stores the part of them that its
// route covers. If the request fails, the stored offers stay until they are
// older than card.OfferTTL.
func (o *Offers) Tick(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, offersTimeout)
	defer cancel()
	offers, err := o.supplier.Offers(asking)
	if err == nil {
		offers, err = o.withoutPromised(ctx, offers)
	}
	if err != nil {
		err = errors.Join(errors.New("offers: "+clean(err.Error())), o.store.KeepOffers(ctx, o.supplier.Name(), o.index))
	} else {
		r := o.routes[o.index]
		err = o.store.SaveOffers(ctx,
			card.SupplierOffers{Supplier: o.supplier.Name(), Priority: o.index, Offers: card.ClipOffers(offers, r.Min, r.Max)})
	}
	return errors.Join(err, o.deleteRemoved(ctx))
}

// withoutPromised subtracts promised cards from the offers that have a total.
func (o *Offers) withoutPromised(ctx context.Context, offers []card.Offer) ([]card.Offer, error) {
	if !slices.ContainsFunc(offers, func(x card.Offer) bool { return x.Total > 0 }) {
		return offers, nil
	}
	r := o.routes[o.index]
	promised, err := o.store.PromisedUSD(ctx, r.Min, r.Max)
	if err != nil {
		return nil, err
	}
	var left []card.Offer
	for _, x := range offers {
		if x.Total > 0 {
			x.Total -= promised
			if x.Max = min(x.Max, x.Total); x.Total <= 0 {
				continue
			}
		}
		left = append(left, x)
	}
	return left, nil
}

// deleteRemoved deletes the offers of suppliers that are no longer configured.
// It runs after the current offers are stored: without any offers, every amount
// is sold.
func (o *Offers) deleteRemoved(ctx context.Context) error {
	var names []string
	for _, r := range o.routes {
		names = append(names, r.Supplier.Name())
	}
	return o.store.DeleteOffers(ctx, names)
}
