package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// receiver returns a webhook handler for handle, and its reported errors.
func receiver(t *testing.T, handle func(context.Context, *Event) error, opts ...WebhookOption) (http.Handler,
	*[]error) {
	t.Helper()
	var mu sync.Mutex
	reported := &[]error{}
	report := func(_ context.Context, err error) {
		mu.Lock()
		defer mu.Unlock()
		*reported = append(*reported, err)
	}
	h, err := NewWebhookHandler(testSecret, handle, append([]WebhookOption{WithErrorFunc(report)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return h, reported
}

// deliver sends an event as the service does.
func deliver(t *testing.T, h http.Handler, id uuid.UUID) *httptest.ResponseRecorder {
	t.Helper()
	return post(h, testPayload, signed(t, time.Now(), id.String(), testPayload, testSecret))
}

func post(h http.Handler, payload string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(payload))
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestNewWebhookHandler_RefusesWhatCannotWork(t *testing.T) {
	handle := func(context.Context, *Event) error { return nil }
	for name, tc := range map[string]struct {
		secret Secret
		handle func(context.Context, *Event) error
		opt    WebhookOption
	}{
		"no secret":         {"", handle, WithSecrets()},
		"unusable secret":   {"hunter2", handle, WithSecrets()},
		"no second secret":  {testSecret, handle, WithSecrets("")},
		"no function":       {testSecret, nil, WithSecrets()},
		"no deduplicator":   {testSecret, handle, WithDeduplicator(nil)},
		"no error function": {testSecret, handle, WithErrorFunc(nil)},
		"no option":         {testSecret, handle, nil},
	} {
		h, err := NewWebhookHandler(tc.secret, tc.handle, tc.opt)
		if err == nil || h != nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWebhookHandler_HandsOverTheEvent(t *testing.T) {
	var got []*Event
	h, reported := receiver(t, func(_ context.Context, e *Event) error {
		got = append(got, e)
		return nil
	}, WithSecrets(otherSecret))
	byOther := signed(t, time.Now(), testID.String(), testPayload, otherSecret)
	byOther.Set("Content-Type", "text/plain") // the signature decides, not the type
	for _, w := range []*httptest.ResponseRecorder{deliver(t, h, eventID), post(h, testPayload, byOther)} {
		if w.Code != http.StatusNoContent || w.Body.Len() > 0 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	want := Event{ID: eventID, Type: EventTypeCardGenerated,
		Timestamp: time.Date(2026, 11, 20, 15, 6, 0, 120_000_000, time.UTC), Seq: 42,
		CardUUID: uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"), Status: CardStatusGenerated,
		PaymentState: PaymentStatePaid}
	other := want
	other.ID = testID
	if diff := difference([]*Event{&want, &other}, got); diff != "" {
		t.Error(diff)
	}
	if len(*reported) > 0 {
		t.Error(*reported)
	}
}

func TestWebhookHandler_RefusesWhatIsNoGoodRequest(t *testing.T) {
	long := strings.Repeat(" ", maxPayload+1)
	const future = `{"timestamp":"2026-11-20T15:06:00.120Z","seq":1}`
	for name, tc := range map[string]struct {
		method, payload string
		header          http.Header
		body            io.Reader
		status          int
		err             error // reported; nil for none
		says            string
	}{
		"GET":        {method: "GET", status: 405, says: "POST"},
		"HEAD":       {method: "HEAD", status: 405},
		"PUT":        {method: "PUT", payload: testPayload, status: 405, says: "POST"},
		"not signed": {header: http.Header{}, status: 401, err: ErrWebhookSignature, says: "missing"},
		"other secret": {header: signed(t, time.Now(), eventID.String(), testPayload, otherSecret), status: 401,
			err: ErrWebhookSignature, says: "check the secret"},
		"too old": {header: signed(t, time.Now().Add(-time.Hour), eventID.String(), testPayload, testSecret),
			status: 401, err: ErrWebhookSignature, says: "clock"},
		"too long": {payload: long, header: signed(t, time.Now(), eventID.String(), long, testSecret), status: 413,
			err: ErrWebhookPayload, says: "too large"},
		"unreadable": {payload: future, header: signed(t, time.Now(), eventID.String(), future, testSecret), status: 400,
			err: ErrWebhookPayload, says: "type"},
		"cut off": {body: io.MultiReader(strings.NewReader(testPayload[:50]), brokenReader{}), status: 400,
			err: ErrWebhookPayload, says: "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			h, reported := receiver(t, func(context.Context, *Event) error {
				t.Error("handled")
				return nil
			})
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			if tc.payload == "" {
				tc.payload = testPayload
			}
			if tc.header == nil {
				tc.header = signed(t, time.Now(), eventID.String(), testPayload, testSecret)
			}
			if tc.body == nil {
				tc.body = strings.NewReader(tc.payload)
			}
			r := httptest.NewRequest(tc.method, "/hook", tc.body)
			r.Header = tc.header
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if allow := w.Header().Get("Allow"); (allow == "POST") != (tc.status == 405) {
				t.Errorf("Allow: %s", allow)
			}
			if tc.err == nil && len(*reported) > 0 || tc.err != nil &&
				(len(*reported) != 1 || !errors.Is((*reported)[0], tc.err)) {
				t.Errorf("reported %v", *reported)
			}
		})
	}
}

func TestWebhookHandler_DuplicateIsNotHandledAgain(t *testing.T) {
	calls := map[uuid.UUID]int{}
	h, _ := receiver(t, func(_ context.Context, e *Event) error {
		calls[e.ID]++
		return nil
	})
	for _, id := range []uuid.UUID{eventID, eventID, testID, eventID, testID} {
		if w := deliver(t, h, id); w.Code != http.StatusNoContent {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if calls[eventID] != 1 || calls[testID] != 1 {
		t.Error(calls)
	}
}

func TestWebhookHandler_ConcurrentDuplicatesWaitForTheFirst(t *testing.T) {
	for name, fails := range map[string]int{"which succeeds": 0, "of which three fail": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				running, calls := 0, 0 // without a lock; the race detector finds concurrent calls
				h, _ := receiver(t, func(context.Context, *Event) error {
					calls++
					if running++; running > 1 {
						t.Error("two concurrent calls")
					}
					time.Sleep(time.Second)
					running--
					if calls <= fails {
						return errors.New("no")
					}
					return nil
				})
				codes := make(chan int, 50)
				for range cap(codes) {
					go func() { codes <- deliver(t, h, eventID).Code }()
				}
				count := map[int]int{}
				for range cap(codes) {
					count[<-codes]++
				}
				if calls != fails+1 || count[500] != fails || count[204] != 50-fails {
					t.Errorf("%d calls, responses %v", calls, count)
				}
			})
		})
	}
}

func TestWebhookHandler_FailedEventComesAgain(t *testing.T) {
	broken := errors.New("password of the database is hunter2")
	calls := 0
	h, reported := receiver(t, func(context.Context, *Event) error {
		if calls++; calls < 3 {
			return broken
		}
		return nil
	})
	for i, want := range []int{500, 500, 204, 204} {
		w := deliver(t, h, eventID)
		if w.Code != want || strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("attempt %d: %d %s", i+1, w.Code, w.Body)
		}
	}
	if calls != 3 || len(*reported) != 2 || !errors.Is((*reported)[0], broken) ||
		!strings.Contains((*reported)[0].Error(), eventID.String()) {
		t.Errorf("%d calls, reported %v", calls, *reported)
	}
}

func TestWebhookHandler_PanicIsNotHandled(t *testing.T) {
	calls := 0
	h, _ := receiver(t, func(context.Context, *Event) error {
		if calls++; calls == 1 {
			panic("a bug")
		}
		return nil
	})
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	defer srv.Close()
	for i, want := range []string{"broken", "204", "204"} {
		r, err := http.NewRequest(http.MethodPost, srv.URL, strings.NewReader(testPayload))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = signed(t, time.Now(), eventID.String(), testPayload, testSecret)
		got := "broken"
		if res, err := srv.Client().Do(r); err == nil {
			got = fmt.Sprint(res.StatusCode)
			_ = res.Body.Close()
		}
		if got != want {
			t.Errorf("attempt %d: %s, want %s", i+1, got, want)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// failing is a Deduplicator whose database fails before or after handle.
type failing struct{ before, after error }

func (f failing) Once(ctx context.Context, _ uuid.UUID, handle func(context.Context) error) error {
	if f.before != nil {
		return f.before
	}
	return errors.Join(handle(ctx), f.after)
}

func TestWebhookHandler_EventThatCannotBeNotedComesAgain(t *testing.T) {
	away := errors.New("database is unavailable")
	for _, d := range []failing{{before: away}, {after: away}} {
		calls := 0
		h, reported := receiver(t, func(context.Context, *Event) error {
			calls++
			return nil
		}, WithDeduplicator(d))
		if w := deliver(t, h, eventID); w.Code != http.StatusInternalServerError || len(*reported) != 1 ||
			!errors.Is((*reported)[0], away) {
			t.Errorf("%d, reported %v", w.Code, *reported)
		}
		if (calls == 1) != (d.after != nil) {
			t.Errorf("%d calls", calls)
		}
	}
}

func TestWebhookHandler_LogsByDefaultAndHoldsNoSecretToPrint(t *testing.T) {
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	h, err := NewWebhookHandler(testSecret, func(context.Context, *Event) error {
		return errors.New("no")
	}, WithSecrets(otherSecret))
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, h, eventID)
	if !strings.Contains(b.String(), "level=WARN") || !strings.Contains(b.String(), eventID.String()) {
		t.Error(b.String())
	}
	text := fmt.Sprintf("%v %+v %#v", h, h, h)
	if strings.Contains(text, "MfKQ9r8") || strings.Contains(text, "bmV3IH") {
		t.Error(text)
	}
}
