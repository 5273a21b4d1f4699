package server

import (
	"context"
	"net/url"
	"strconv"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// pageSize is the default limit of lists that always have pages.
const pageSize = 100

// ListEvents implements listEvents.
func (a *api) ListEvents(ctx context.Context, r ListEventsRequestObject) (ListEventsResponseObject, error) {
	ctx, owner, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	after, limit := deref(r.Params.After, 0), int(deref(r.Params.Limit, pageSize))
	es, more, err := a.webhooks.ListEvents(ctx, owner, after, limit)
	if err != nil {
		return nil, err
	}
	page := ListEvents200JSONResponse{Body: make([]Event, len(es))}
	for i, e := range es {
		page.Body[i] = wireEvent(e)
	}
	if more {
		page.Headers.Link = next("/api/events", url.Values{"limit": {strconv.Itoa(limit)}, "after": {strconv.FormatInt(es[limit-1].Seq, 10)}})
	}
	return page, nil
}

// next returns the value of the Link header to the next page (RFC 8288).
func next(path string, query url.Values) *string {
	return ptr("<" + path + "?" + query.Encode() + `>; rel="next"`)
}

// wireEvent converts an event to its form in the contract. Event.Payload is the same without the id; a test compares them.
func wireEvent(e card.Event) Event {
	w := Event{ID: e.ID, Type: EventType(e.Type), Timestamp: Time(e.CreatedAt), Seq: e.Seq}
	if e.CardUUID != uuid.Nil {
		w.CardUUID, w.Status, w.PaymentState = &e.CardUUID, ptr(CardStatus(e.Status)), ptr(PaymentState(e.State))
	}
	if e.Reference != "" {
		w.Reference = ptr(e.Reference.Reveal())
	}
	if e.WebhookID != uuid.Nil {
		w.WebhookID = &e.WebhookID
	}
	if !e.Since.IsZero() {
		w.Since = ptr(Time(e.Since))
	}
	return w
}

// deref returns *p, or absent if p is nil.
func deref[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}
