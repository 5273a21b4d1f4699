package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// A reader that is older than the oldest kept event first gets a reset; other
// readers do not.
func TestEvents_AfterPrunedEvent_ReturnsReset(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token, account := d.owner(t)
		of := d.cardOf(t, account)
		d.happen(t, account, card.EventDetected, card.EventWebhookDisabled, card.EventUnderpaid, card.EventLate,
			card.EventGenerated)
		type event struct {
			ID       uuid.UUID
			Seq      int64
			Type     card.EventType
			CardUUID *uuid.UUID `json:"card_uuid"`
			Since    *time.Time
		}
		read := func(query string) (all []string) {
			t.Helper()
			for _, e := range bodyOf[[]event](t,
				d.send(t, http.MethodGet, "/api/events"+query, token, "").want(t, http.StatusOK)) {
				all = append(all, fmt.Sprint(e.Seq, " ", e.Type, " ", e.CardUUID != nil, " ", e.Since != nil))
			}
			return all
		}
		followed := d.open(t, d.web.URL, "?after=4", token).begun() // from before
		followed.next()
		if n, err := d.store.PruneEvents(t.Context(), account, 0, 3); err != nil || n != 3 {
			t.Fatalf("pruned %d, %v", n, err)
		}
		reset := []string{"3 feed.reset false true", "4 payment.late true false", "5 card.generated true false"}
		equal(t, "from the start", read(""), reset)
		equal(t, "after an event that is gone", read("?after=1"), reset)
		equal(t, "a page", read("?after=2&limit=1"), reset[:1])
		equal(t, "while waiting", read("?after=2&wait=60"), reset)
		equal(t, "after the newest that is gone", read("?after=3"), reset[1:])
		equal(t, "of the card", read("?card="+of.String()), reset[1:])
		equal(t, "nothing new", read("?after=5"), nil)
		stream := d.open(t, d.web.URL, "", token, "Last-Event-ID", "1").begun()
		stream.wants(token, card.Event{Seq: 3, Type: card.EventFeedReset})
		stream.wants(token, card.Event{Seq: 4, Type: card.EventLate})
		for _, e := range d.happen(t, account, card.EventReversed) {
			followed.wants(token, e) // and no reset before
		}
	})
}
