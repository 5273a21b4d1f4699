package issue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Offering is a supplier that also says what can be had of it, without making
// anything.
type Offering interface {
	Supplier
	Offers(ctx context.Context) ([]card.Offer, error)
}

// OfferStore keeps what can be had of suppliers. Every method is harmless when
// it runs twice.
type OfferStore interface {
	// SaveOffers replaces the offers of a supplier, which has just made them.
	// Their Age is not stored.
	SaveOffers(ctx context.Context, o card.SupplierOffers) error
	// PromisedUSD returns the sum of the cards between two amounts, both
	// included, that may still be paid, or are paid and not issued. It leaves
	// out cards with a reserved item of a stock, and cards whose refund is due.
	PromisedUSD(ctx context.Context, least, most card.USD) (card.USD, error)
	// KeepOffers leaves the offers of a supplier as they are, and lets them
	// age.
	KeepOffers(ctx context.Context, supplier string, priority int) error
	// DeleteOffers deletes the offers of all suppliers except those that are
	// named. At least one must be.
	DeleteOffers(ctx context.Context, except []string) error
}

// offersTimeout is for one supplier to say what can be had of it.
const offersTimeout = 15 * time.Second

// Offers keeps what can be had of one supplier.
type Offers struct {
	store    OfferStore
	supplier Offering
	routes   Routes
	index    int
}

// NewOffers returns what keeps the offers of the supplier of the route with an
// index. It returns an error if that supplier makes none.
func NewOffers(store OfferStore, routes Routes, index int) (*Offers, error) {
	s, ok := routes[index].Supplier.(Offering)
	if !ok {
		return nil, fmt.Errorf("supplier %s does not say what can be had", routes[index].Supplier.Name())
	}
	return &Offers{store, s, routes, index}, nil
}

// Tick asks the supplier, and stores that part of its offers which it is asked
// for. If it fails, what it offered last is withdrawn once it is older than
// card.OfferTTL.
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
	return errors.Join(err, o.forget(ctx))
}

// withoutPromised takes what is promised already out of the offers that have a
// total.
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

// forget deletes the offers of suppliers that there are no more, once there are
// others: without any, everything is sold.
func (o *Offers) forget(ctx context.Context) error {
	var names []string
	for _, r := range o.routes {
		names = append(names, r.Supplier.Name())
	}
	return o.store.DeleteOffers(ctx, names)
}
