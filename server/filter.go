package server

import (
	"errors"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// maxPageMetadata is how many bytes of metadata a page may have before its last
// card. A page is in memory as a whole.
const maxPageMetadata = 1 << 20

// errPageFull stops reading cards.
var errPageFull = errors.New("the page is full")

// cardFilter converts the parameters of listCards to a filter.
func cardFilter(account uuid.UUID, p ListCardsParams) order.Filter {
	f := order.Filter{
		AccountID:     account,
		Status:        card.Status(deref(p.Status, "")),
		State:         card.PaymentState(deref(p.PaymentState, "")),
		Currency:      deref(p.Currency, ""),
		Reference:     card.Secret(deref(p.Reference, "")),
		CreatedAfter:  time.Time(deref(p.CreatedAfter, Time{})),
		CreatedBefore: time.Time(deref(p.CreatedBefore, Time{})),
	}
	if p.CreatedBefore != nil && f.CreatedBefore.IsZero() {
		f.CreatedBefore = f.CreatedBefore.Add(1) // the zero time means no bound
	}
	return f
}

// filterQuery is the inverse of cardFilter.
func filterQuery(f order.Filter) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"status": string(f.Status), "payment_state": string(f.State),
		"currency": f.Currency, "reference": f.Reference.Reveal()} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"created_after": f.CreatedAfter, "created_before": f.CreatedBefore} {
		if !at.IsZero() {
			query.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	return query
}
