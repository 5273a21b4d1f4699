package card_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// An assessment leads to at most one intent, to an event for each change, and
// to an alarm for cards that need an operator.
func TestJudge_EachState_IssueAndEvent(t *testing.T) {
	id := uuid.Must(uuid.NewV7())
	tip := card.Tip{Height: 109, Time: epoch}
	late := func(x *card.Transfer) { x.FirstSeenAt = epoch.Add(2 * time.Hour) }
	refused := func(c *card.Card) { c.State, c.Received, c.Refused = card.Paid, 100, true }
	for name, tt := range map[string]struct {
		card  *card.Card
		in    []card.Transfer
		tip   card.Tip
		issue bool
		event card.EventType
		alarm bool
	}{
		"nothing new": {order(), nil, tip, false, "", false},
		"paid":        {order(), []card.Transfer{in(100, 100)}, tip, true, card.EventDetected, false},
		"paid before": {order(func(c *card.Card) { c.State = card.Paid }), []card.Transfer{in(100, 100)}, tip,
			true, "", false},
		"issued":             {order(generated), []card.Transfer{in(100, 100)}, tip, false, "", false},
		"issued, money left": {order(generated), nil, tip, false, card.EventReversed, true},
		"reversed, as it was": {order(generated, func(c *card.Card) { c.State = card.Reversed }), nil, tip, false, "",
			false},
		"reversed, and restored": {order(generated, func(c *card.Card) { c.State = card.Reversed }),
			[]card.Transfer{in(100, 100)}, tip, false, card.EventRestored, false},
		"reversed, partly returned": {order(generated, func(c *card.Card) { c.State = card.Reversed }),
			[]card.Transfer{in(40, 100)}, tip, false, "", false},
		"too little": {order(), []card.Transfer{in(40, 100)}, tip, false, card.EventUnderpaid, false},
		"late": {order(), []card.Transfer{in(40, 100, late)},
			card.Tip{Height: 109, Time: epoch.Add(3 * time.Hour)}, false, card.EventLate, true},
		"no supplier, unchanged": {order(refused), []card.Transfer{in(100, 100)}, tip, true, "", false},
		"no supplier, more money": {order(refused), []card.Transfer{in(100, 100), in(50, 100)}, tip, true,
			card.EventRefundDue, true},
		"no supplier, money left": {order(refused), nil, tip, false, "", false},
		"expired": {order(), nil, card.Tip{Height: 109, Time: epoch.Add(3 * time.Hour)}, false,
			card.EventExpired, false},
	} {
		tt.card.AccountID, tt.card.UUID = uuid.New(), uuid.New()
		v := card.Judge(tt.card, tt.in, tt.tip, rateOf(t, "150"), id)
		if v.Issue != tt.issue || v.Alarm() != tt.alarm || (v.Event == nil) != (tt.event == "") {
			t.Errorf("%s: issue %t, alarm %t, event %v", name, v.Issue, v.Alarm(), v.Event)
		}
		if diff := cmp.Diff(card.Assess(tt.card, tt.in, tt.tip, rateOf(t, "150")), v.Assessment); diff != "" ||
			v.Card != tt.card {
			t.Errorf("%s: %s", name, diff)
		}
		if v.Event == nil {
			continue
		}
		want := card.Event{ID: id, AccountID: tt.card.AccountID, Type: tt.event, CardUUID: tt.card.UUID,
			Status: tt.card.Status, State: v.Assessment.State,
			CreatedAt: card.TimeOf(id)}
		if diff := cmp.Diff(want, *v.Event); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestConfirmed_AllTransfersFirm(t *testing.T) {
	locked := func(x *card.Transfer) { x.Locked = true }
	gone := func(x *card.Transfer) { x.Counted = false }
	for name, tt := range map[string]struct {
		in     []card.Transfer
		height int64
		want   bool
	}{
		"nothing":                   {nil, 1000, false},
		"one confirmation short":    {[]card.Transfer{in(1, 100)}, 108, false},
		"just confirmed":            {[]card.Transfer{in(1, 100)}, 109, true},
		"one of two unconfirmed":    {[]card.Transfer{in(1, 100), in(1, 101)}, 109, false},
		"one is in the mempool":     {[]card.Transfer{in(1, 100), in(1, 0)}, 1000, false},
		"one is locked":             {[]card.Transfer{in(1, 100), in(1, 100, locked)}, 1000, false},
		"one left the chain":        {[]card.Transfer{in(1, 100), in(1, 0, gone)}, 109, true},
		"locked one left the chain": {[]card.Transfer{in(1, 100), in(1, 100, gone, locked)}, 109, true},
	} {
		if got := card.Confirmed(order(), tt.in, card.Tip{Height: tt.height}); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAwaited_ReturnsNeededTransfersThatAreNotFirm(t *testing.T) {
	for name, tt := range map[string]struct {
		card *card.Card
		in   []card.Transfer
		want []int64 // heights
	}{
		"nothing":                        {order(), nil, nil},
		"one confirmation short":         {order(), []card.Transfer{in(100, 101)}, []int64{101}},
		"confirmed":                      {order(), []card.Transfer{in(100, 100)}, nil},
		"dust in the mempool not needed": {order(), []card.Transfer{in(100, 101), in(1, 0)}, []int64{101}},
		"rest in the mempool":            {order(), []card.Transfer{in(99, 90), in(1, 0)}, []int64{0}},
		"locked one needed":              {order(), []card.Transfer{in(100, 50, locked), in(60, 90)}, []int64{50}},
		"smaller accepted amount":        {order(accepted), []card.Transfer{in(60, 105), in(40, 107)}, []int64{105}},
		"one left the chain":             {order(), []card.Transfer{in(100, 105, gone)}, nil},
		"not enough, all needed":         {order(), []card.Transfer{in(30, 105), in(30, 0)}, []int64{105, 0}},
		"refunded and paid again":        {order(refunded), []card.Transfer{in(99, 50), in(100, 105)}, []int64{105}},
		"once paid, mined again": {order(func(c *card.Card) { c.Settled = 75 }),
			[]card.Transfer{in(75, 105), in(25, 107)}, []int64{105}},
	} {
		var got []int64
		for _, x := range card.Awaited(tt.card, tt.in, card.Tip{Height: 109}) {
			got = append(got, x.Height)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCard_Confirmations(t *testing.T) {
	for _, tt := range []struct{ height, tip, want int64 }{
		{0, 100, 0}, {100, 100, 1}, {91, 100, 10}, {101, 100, 0}, {102, 100, 0}, {1, 0, 0}} {
		c := card.Card{Height: tt.height, TipHeight: tt.tip}
		if got := c.Confirmations(); got != tt.want {
			t.Errorf("block %d at tip %d: %d, want %d", tt.height, tt.tip, got, tt.want)
		}
	}
}

// A replay shows the card as it was created, regardless of later changes.
func TestCard_AsCreated(t *testing.T) {
	want := order(func(c *card.Card) {
		c.UUID, c.Address, c.IdempotencyKey, c.RequestHash, c.TipHeight = uuid.New(), "a", "k", []byte("h"), 7
	})
	now := *want
	now.Status, now.State, now.Received, now.Settled, now.Height, now.Sealed = card.Generated, card.Paid, 1, 2, 3,
		&card.Sealed{}
	now.Accepted, now.Refunded, now.WrittenOff, now.Credit = 4, 5, 6, card.Credit{Paid: 1, Surplus: 2}
	want.Credit = card.Credit{Due: want.Amount}
	if diff := cmp.Diff(want, now.AsCreated()); diff != "" {
		t.Error(diff)
	}
	if now.Status != card.Generated || now.Received != 1 {
		t.Error("the original card changed")
	}
}

func TestTimeOf_ReturnsTimeOfID(t *testing.T) {
	id := uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")
	if got := card.TimeOf(id); !got.Equal(time.UnixMilli(0x019aa1c9f868)) || got.Location() != time.UTC {
		t.Errorf("%v", got)
	}
}

func TestError_KeepsCauseFromClients(t *testing.T) {
	cause := errors.New("dial 10.0.0.1")
	e := card.ErrUnavailable.WithCause(cause).WithMessage("Try later.").WithFields(
		card.FieldError{Pointer: "/x"}).WithQuota(
		card.Quota{Limit: 3})
	if !errors.Is(e, card.ErrUnavailable) || !errors.Is(e, cause) || errors.Is(e, card.ErrNotFound) ||
		errors.Is(e, errors.New("x")) {
		t.Error("errors.Is does not match the failure or its cause")
	}
	if e.Error() != "unavailable: dial 10.0.0.1" ||
		card.ErrNotFound.WithMessage("No card.").Error() != "not_found: No card." {
		t.Errorf("%q", e.Error())
	}
	if e.Message != "Try later." || len(e.Fields) != 1 || e.Quota.Limit != 3 || e.Kind != card.Unavailable ||
		e.RetryAfter != card.ErrUnavailable.RetryAfter {
		t.Errorf("%+v", e)
	}
	if u := card.ErrUnavailable; u.Cause != nil || u.Fields != nil || u.Quota != nil || u.Message == e.Message {
		t.Errorf("the original failure changed: %+v", u)
	}
	if card.Unready("no fresh rate").Error() != "no fresh rate" {
		t.Error("Unready loses its reason")
	}
}

// Every failure has its own code, a title and a message, and only temporary
// ones have a RetryAfter.
func TestPublicErrors_Complete(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range card.PublicErrors() {
		if e.Code == "" || seen[e.Code] || e.Title == "" || e.Message == "" || e.Cause != nil {
			t.Errorf("%+v", e)
		}
		if again := e.Kind == card.Unavailable || e.Kind == card.LimitReached; again != (e.RetryAfter > 0) {
			t.Errorf("%s: retry after %v", e.Code, e.RetryAfter)
		}
		seen[e.Code] = true
	}
	var none card.Kind
	if none != card.Internal || !seen["internal"] {
		t.Error("a failure of no kind is not internal")
	}
}

func TestSecret_Reveal(t *testing.T) {
	s := card.Secret("canary")
	showsNothing(t, s)
	if s.Reveal() != "canary" || s.String() != "[redacted]" {
		t.Error(s.String())
	}
}

func TestDecimal_Rescale(t *testing.T) {
	for _, tt := range []struct {
		from  string
		scale int
		want  string
	}{{"1.5", 1, "1.5"}, {"1.50", 1, "1.5"}, {"1.55", 1, ""}, {"1", 12, "1"},
		{"9223372036854775807", 0, "9223372036854775807"}, {"9223372036854775807", 1, ""}, {"0", 0, "0"}} {
		var d card.Decimal
		if err := d.UnmarshalText([]byte(tt.from)); err != nil {
			t.Fatal(err)
		}
		got, err := d.Rescale(tt.scale)
		if (err != nil) != (tt.want == "") || err == nil && (got.String() != tt.want || got.Scale != tt.scale) {
			t.Errorf("%s at %d decimals: %s, %v", tt.from, tt.scale, got, err)
		}
	}
	text, err := card.Decimal{Units: 5, Scale: 3}.MarshalText()
	if string(text) != "0.005" || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

// An example event has a card in the state that the event implies.
func TestExampleEvent_StatusMatchesType(t *testing.T) {
	for _, kind := range card.EventTypes() {
		want := card.AwaitingPayment
		switch kind {
		case card.EventGenerated, card.EventReversed, card.EventRestored:
			want = card.Generated
		case card.EventWebhookDisabled, card.EventFeedReset:
			want = ""
		}
		got := card.ExampleEvent(uuid.Must(uuid.NewV7()), uuid.New(), uuid.New(), kind)
		if got.Status != want || (got.WebhookID != uuid.Nil) != (kind == card.EventWebhookDisabled) ||
			got.Since.IsZero() != (kind != card.EventFeedReset) {
			t.Errorf("%s: status %q, want %q", kind, got.Status, want)
		}
	}
}

func TestPrice_NoAmountOrRate_Fails(t *testing.T) {
	for _, tt := range []struct {
		usd  card.USD
		rate int64
	}{{0, 1}, {-1, 1}, {1, 0}, {1, -1}} {
		if got, err := monero().Price(tt.usd,
			card.Rate{USD: card.Decimal{Units: tt.rate, Scale: card.RateScale}}); err == nil {
			t.Errorf("%d cents at %d: %d", tt.usd, tt.rate, got)
		}
	}
}
