package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// feed is a service with the given number of events, in pages of at most
// longest.
func feed(t *testing.T, events, longest int) (*Client, *[]string) {
	t.Helper()
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		after, _ := strconv.Atoi(r.URL.Query().Get("after"))
		last := min(after+longest, events)
		page := []string{}
		for seq := after + 1; seq <= last; seq++ {
			page = append(page,
				fmt.Sprintf(
					`{"id":"019aa1ca-7a3e-7b04-8a0b-%012d","type":"card.generated","timestamp":"2026-11-20T15:06:00.120Z","seq":%d}`,
					seq, seq))
		}
		w.Header().Set("Content-Type", "application/json")
		if last < events {
			w.Header().Set("Link", fmt.Sprintf(`</api/events?after=%d&limit=%d>; rel="next"`, last, longest))
		}
		fmt.Fprintf(w, "[%s]", strings.Join(page, ","))
	}))
	t.Cleanup(srv.Close)
	c, err := New(srv.URL, testToken)
	if err != nil {
		t.Fatal(err)
	}
	return c, &asked
}

func TestEvents_AreReadFromAPlaceToTheEnd(t *testing.T) {
	c, asked := feed(t, 8, 3)
	var got []int64
	for e, err := range c.Events(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("019aa1ca-7a3e-7b04-8a0b-%012d", e.Seq); e.ID.String() != want {
			t.Errorf("id %s of event %d", e.ID, e.Seq)
		}
		got = append(got, e.Seq)
	}
	if diff := difference([]int64{2, 3, 4, 5, 6, 7, 8}, got); diff != "" {
		t.Error(diff)
	}
	want := []string{"/api/events?after=1&limit=1000", "/api/events?after=4&limit=3", "/api/events?after=7&limit=3"}
	if diff := difference(want, *asked); diff != "" {
		t.Error(diff)
	}
}

func TestEvents_EachLoopStartsAfresh(t *testing.T) {
	c, _ := feed(t, 5, 2)
	events := c.Events(t.Context(), 0)
	for range 2 {
		n := int64(0)
		for e, err := range events {
			if n++; err != nil || e.Seq != n {
				t.Fatalf("%v, %v instead of %d", e, err, n)
			}
		}
		if n != 5 {
			t.Errorf("%d events", n)
		}
	}
}

func TestEvents_NoneIsNoError(t *testing.T) {
	c, _ := feed(t, 5, 3)
	for e, err := range c.Events(t.Context(), 5) {
		t.Errorf("%v, %v", e, err)
	}
}

func TestEvents_NeverEndShortWithoutAnError(t *testing.T) {
	page := answer(200,
		`[{"id":"019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11","type":"card.generated","timestamp":"2026-11-20T15:06:00.120Z","seq":1}]`,
		"Link", `</api/events?after=1&limit=1000>; rel="next"`)
	c, _ := scripted(t, []step{page, problem(401, ProblemCodeUnauthorized)})
	var got []int64
	var last error
	for e, err := range c.Events(t.Context(), 0) {
		if last = err; err == nil {
			got = append(got, e.Seq)
		}
	}
	if len(got) != 1 || last == nil || !strings.HasPrefix(last.Error(), "ListEvents: 401") {
		t.Errorf("%v, %v", got, last)
	}
}

func TestEvent_JSONIsTheContracts(t *testing.T) {
	for _, text := range []string{
		`{"id":"019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11","type":"card.generated","timestamp":"2026-11-20T15:06:00.12Z","seq":42,"card_uuid":"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88","status":"generated","payment_state":"paid"}`,
		`{"id":"019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11","type":"webhook.disabled","timestamp":"2026-11-20T15:06:00.12Z","seq":43,"webhook_id":"019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17"}`,
	} {
		var e Event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(e)
		if diff := difference(text, string(raw)); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
}

func TestListDeliveries_FollowsThePages(t *testing.T) {
	delivery := `[{"event":{"id":"019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11","type":"webhook.disabled","timestamp":"2026-11-20T15:06:00.120Z","seq":42,
"webhook_id":"019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17"},"state":"pending","attempts":[` + testAttempt + `],"next_attempt_at":"2026-11-20T15:11:00.000Z"}]`
	c, s := scripted(t, []step{
		answer(200, delivery, "Link",
			`</api/webhooks/019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17/deliveries?before=42&limit=1&state=pending>; rel="next"`),
		answer(200, "[]"),
	})
	var got []*Delivery
	for d, err := range c.ListDeliveries(t.Context(), hookID,
		ListDeliveriesOptions{State: DeliveryStatePending, PageSize: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d)
	}
	at := time.Date(2026, 11, 20, 15, 6, 0, 0, time.UTC)
	want := []*Delivery{{
		Event: Event{ID: eventID, Type: EventTypeWebhookDisabled, Timestamp: at.Add(120 * time.Millisecond), Seq: 42,
			WebhookID: hookID},
		State: DeliveryStatePending, NextAttemptAt: ptr(at.Add(5 * time.Minute)),
		Attempts: []DeliveryAttempt{{At: at.Add(131 * time.Millisecond), DurationMs: 84, Error: "no answer"}},
	}}
	if diff := difference(want, got); diff != "" {
		t.Error(diff)
	}
	path := "https://cards.test/api/webhooks/" + hookID.String() + "/deliveries?"
	for i, want := range []string{path + "limit=1&state=pending", path + "before=42&limit=1&state=pending"} {
		if got := s.seen[i].URL.String(); got != want {
			t.Errorf("requested %s, want %s", got, want)
		}
	}
}

func TestListDeliveries_PagesAreSmallerThanTheLargestAnswer(t *testing.T) {
	// The largest delivery has 20 attempts with 1,024 bytes each, which JSON
	// escapes as six bytes per byte.
	const largest = 20 * (6*1024 + 512)
	c, s := scripted(t, []step{answer(200, "[]")})
	for range c.ListDeliveries(t.Context(), uuid.Nil, ListDeliveriesOptions{}) {
	}
	limit, err := strconv.Atoi(s.seen[0].URL.Query().Get("limit"))
	if err != nil || limit*largest > maxAnswer {
		t.Errorf("limit %d, %v", limit, err)
	}
}
