package card_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/openapi"
)

// schema returns a schema of the contract that permits no other fields.
func schema(t *testing.T, name string) *openapi3.Schema {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.YAML)
	if err != nil {
		t.Fatal(err)
	}
	s := doc.Components.Schemas[name].Value
	if s.Type.Is("object") {
		s.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
	}
	return s
}

func TestEventTypes_MatchContract(t *testing.T) {
	var want []card.EventType
	for _, v := range schema(t, "EventType").Enum {
		want = append(want, card.EventType(v.(string)))
	}
	if diff := cmp.Diff(want, card.EventTypes()); diff != "" {
		t.Error(diff)
	}
}

// A receiver checks the signature of bytes, and each redelivery is signed
// again, so the bytes of an event must never change.
func TestPayload_Golden(t *testing.T) {
	east := time.FixedZone("east", 2*60*60)
	cardID, hookID := uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"),
		uuid.MustParse("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")
	about := func(kind card.EventType, at time.Time) card.Event {
		return card.Event{ID: uuid.New(), AccountID: uuid.New(), Seq: 42, Type: kind, CreatedAt: at}
	}
	generated := about(card.EventGenerated, time.Date(2026, 11, 20, 15, 6, 0, 120e6, time.UTC))
	generated.CardUUID, generated.Status, generated.State = cardID, card.Generated, card.Paid
	named := generated
	named.Reference = "order <4711> \U0001f600"
	expired := about(card.EventExpired, time.Date(2026, 1, 2, 5, 4, 5, 999_999_999, east))
	expired.Seq, expired.CardUUID, expired.Status, expired.State = 1<<62, cardID, card.AwaitingPayment, card.Expired
	disabled := about(card.EventWebhookDisabled, time.Date(2026, 11, 20, 15, 6, 0, 0, time.UTC))
	disabled.WebhookID = hookID
	reset := about(card.EventFeedReset, time.Date(2026, 11, 20, 15, 6, 0, 0, time.UTC))
	reset.Since = time.Date(2026, 11, 20, 17, 5, 30, 1e6, east)
	for name, tt := range map[string]struct {
		event card.Event
		want  string
	}{
		"of a card": {generated, `{"type":"card.generated","timestamp":"2026-11-20T15:06:00.120Z","seq":42,` +
			`"card_uuid":"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88","status":"generated","payment_state":"paid"}`},
		"of a card with a reference": {named, `{"type":"card.generated","timestamp":"2026-11-20T15:06:00.120Z","seq":42,` +
			`"card_uuid":"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88","reference":"order \u003c4711\u003e ` + "\U0001f600" +
			`","status":"generated","payment_state":"paid"}`},
		"another time zone": {expired,
			`{"type":"payment.expired","timestamp":"2026-01-02T03:04:05.999Z","seq":4611686018427387904,` +
				`"card_uuid":"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88","status":"awaiting_payment","payment_state":"expired"}`},
		"of a webhook": {disabled, `{"type":"webhook.disabled","timestamp":"2026-11-20T15:06:00.000Z","seq":42,` +
			`"webhook_id":"019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17"}`},
		"of the feed": {reset,
			`{"type":"feed.reset","timestamp":"2026-11-20T15:06:00.000Z","seq":42,"since":"2026-11-20T15:05:30.001Z"}`},
	} {
		if diff := cmp.Diff(tt.want, string(tt.event.Payload())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if first, second := tt.event.Payload(), tt.event.Payload(); string(first) != string(second) {
			t.Errorf("%s: first %s, then %s", name, first, second)
		}
	}
}

func TestExampleEvent_MatchesContract(t *testing.T) {
	contract := schema(t, "EventPayload")
	for _, kind := range card.EventTypes() {
		e := card.ExampleEvent(uuid.Must(uuid.NewV7()), uuid.New(), uuid.Must(uuid.NewV7()), kind)
		payload := e.Payload()
		if kind == card.EventFeedReset && !e.Since.Before(e.CreatedAt) {
			t.Errorf("events are lost since %v, after %v", e.Since, e.CreatedAt)
		}
		if len(payload) > 20<<10 {
			t.Errorf("%s: %d bytes are more than Standard Webhooks wants", kind, len(payload))
		}
		var value map[string]any
		if err := json.Unmarshal(payload, &value); err != nil {
			t.Fatal(err)
		}
		if err := contract.VisitJSON(value, openapi3.VisitAsResponse(), openapi3.MultiErrors()); err != nil {
			t.Errorf("%s: %v: %s", kind, err, payload)
		}
		var fields []string
		for name := range value {
			fields = append(fields, name)
		}
		slices.Sort(fields)
		want := []string{"card_uuid", "payment_state", "seq", "status", "timestamp", "type"}
		if kind == card.EventWebhookDisabled {
			want = []string{"seq", "timestamp", "type", "webhook_id"}
		}
		if kind == card.EventFeedReset {
			want = []string{"seq", "since", "timestamp", "type"}
		}
		if diff := cmp.Diff(want, fields); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
		if value["type"] != string(kind) || value["seq"] != 0.0 {
			t.Errorf("%s: %s", kind, payload)
		}
	}
}

func TestAppendTime_UTCWithThreeDigits(t *testing.T) {
	const layout = "2006-01-02T15:04:05.000Z"
	abroad := time.FixedZone("", -(9*3600 + 1800))
	for _, at := range []time.Time{
		{}, time.Unix(0, 0), time.UnixMilli(1_795_389_614_002), time.Date(2026, 12, 31, 23, 59, 59, 999_999_999, abroad),
		time.Date(2027, 1, 2, 3, 4, 5, 60_000_000, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 700_000_000, time.UTC),
	} {
		if got, want := string(card.AppendTime([]byte("at "), at)), "at "+at.UTC().Format(layout); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
