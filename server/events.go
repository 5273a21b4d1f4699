package server

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// pageSize is the default limit of lists that are always paginated.
const pageSize = 100

// ListEvents implements listEvents.
func (a *api) ListEvents(gc context.Context, r ListEventsRequestObject) (ListEventsResponseObject, error) {
	limit := int(deref(r.Params.Limit, pageSize))
	f, err := a.newFeed(gc,
		webhook.EventFilter{After: deref(r.Params.After, 0), Limit: limit, CardUUID: deref(r.Params.Card, uuid.Nil)})
	if err != nil {
		return nil, err
	}
	if last := r.Params.LastEventID; last != nil {
		f.filter.After, f.after = *last, "header/Last-Event-ID"
	}
	if prefersStream(f.request.Header.Values("Accept")) {
		return eventStream{f, a.heartbeat}, nil
	}
	es, more, err := f.first(a.gates)
	if wait := time.Duration(deref(r.Params.Wait, 0)) * time.Second; err == nil && len(es) == 0 && wait > 0 && !f.head() {
		es, more, err = f.poll(gc.(*gin.Context).Writer, wait)
	}
	if err != nil {
		return nil, err
	}
	page := ListEvents200JSONResponse{Body: make([]Event, len(es))}
	for i, e := range es {
		page.Body[i] = wireEvent(e)
	}
	if more {
		query := url.Values{"limit": {strconv.Itoa(limit)}, "after": {strconv.FormatInt(es[limit-1].Seq, 10)}}
		if f.filter.CardUUID != uuid.Nil {
			query.Set("card", f.filter.CardUUID.String())
		}
		page.Headers.Link = next("/api/events", query)
	}
	return watchedEvents{page, f.openEnded}, nil
}

// next returns the value of the Link header to the next page (RFC 8288).
func next(path string, query url.Values) *string {
	return ptr("<" + path + "?" + query.Encode() + `>; rel="next"`)
}

// wireEvent converts an event to the contract's form. Event.Payload is the same
// without the id; a test compares them.
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
