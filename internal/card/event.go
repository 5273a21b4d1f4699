package card

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
)

// EventType is the type of an event.
type EventType string

const (
	EventGenerated       EventType = "card.generated"
	EventRefundDue       EventType = "card.refund_due"
	EventDetected        EventType = "payment.detected"
	EventUnderpaid       EventType = "payment.underpaid"
	EventLate            EventType = "payment.late"
	EventExpired         EventType = "payment.expired"
	EventCanceled        EventType = "payment.canceled"
	EventReversed        EventType = "payment.reversed"
	EventRestored        EventType = "payment.restored"
	EventWebhookDisabled EventType = "webhook.disabled"
	EventFeedReset       EventType = "feed.reset"
)

// EventTypes returns all types. A test compares them with the contract.
func EventTypes() []EventType {
	return []EventType{EventGenerated, EventRefundDue, EventDetected, EventUnderpaid, EventLate, EventExpired,
		EventCanceled, EventReversed, EventRestored, EventWebhookDisabled, EventFeedReset}
}

// Event is a notification to an account.
type Event struct {
	ID        uuid.UUID
	AccountID uuid.UUID
	Seq       int64 // without gaps, in the order of commits, per account
	Type      EventType
	CardUUID  uuid.UUID // zero if the event is not about a card; then Status and State are empty
	Status    Status
	State     PaymentState
	Reference Secret    // of the card; "" if it has none. The store sets it where events are read
	WebhookID uuid.UUID // with EventWebhookDisabled
	Since     time.Time // with EventFeedReset: events since then may have been lost
	CreatedAt time.Time
}

// AppendTime appends a time in the contract's form: RFC 3339 in UTC, always
// with three fractional digits.
func AppendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	b = slices.Grow(b, len("2006-01-02T15:04:05.000Z"))
	b = t.AppendFormat(b, time.RFC3339) // three times as fast as a layout with a fraction
	ms := t.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', lastDigit(ms/100), lastDigit(ms/10), lastDigit(ms), 'Z')
}

// lastDigit returns the last decimal digit of n.
func lastDigit(n int) byte { return '0' + byte(n%10) }

// Payload returns the body of webhooks, the same bytes on every call.
func (e Event) Payload() []byte {
	body := struct {
		Type      EventType    `json:"type"`
		Timestamp string       `json:"timestamp"`
		Seq       int64        `json:"seq"`
		CardUUID  uuid.UUID    `json:"card_uuid,omitzero"`
		Reference string       `json:"reference,omitempty"`
		Status    Status       `json:"status,omitempty"`
		State     PaymentState `json:"payment_state,omitempty"`
		WebhookID uuid.UUID    `json:"webhook_id,omitzero"`
		Since     string       `json:"since,omitempty"`
	}{Type: e.Type, Timestamp: string(AppendTime(nil, e.CreatedAt)), Seq: e.Seq, CardUUID: e.CardUUID,
		Reference: e.Reference.Reveal(),
		Status:    e.Status, State: e.State, WebhookID: e.WebhookID}
	if !e.Since.IsZero() {
		body.Since = string(AppendTime(nil, e.Since))
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // impossible: strings and a number only
	}
	return text
}

// NewEvent returns an event about a card. Its id is a version 7 UUID, whose
// time is the event's.
func NewEvent(id uuid.UUID, c *Card, kind EventType, status Status, state PaymentState) Event {
	return Event{ID: id, AccountID: c.AccountID, Type: kind, CardUUID: c.UUID, Status: status, State: state,
		CreatedAt: TimeOf(id)}
}

// ExampleEvent returns an event for tests of webhooks, about a card or a
// webhook that does not exist. id is a version 7 UUID.
func ExampleEvent(id, account, about uuid.UUID, kind EventType) Event {
	e := Event{ID: id, AccountID: account, Type: kind, CreatedAt: TimeOf(id)}
	switch kind {
	case EventWebhookDisabled:
		e.WebhookID = about
		return e
	case EventFeedReset:
		e.Since = e.CreatedAt.Add(-time.Minute)
		return e
	}
	e.CardUUID = about
	e.Status, e.State = AwaitingPayment, map[EventType]PaymentState{
		EventGenerated: Paid, EventRefundDue: Paid, EventDetected: Detected, EventUnderpaid: Underpaid, EventLate: Late,
		EventExpired:  Expired,
		EventCanceled: Canceled, EventReversed: Reversed, EventRestored: Paid,
	}[kind]
	if slices.Contains([]EventType{EventGenerated, EventReversed, EventRestored}, kind) {
		e.Status = Generated
	}
	return e
}
