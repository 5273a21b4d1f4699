package acceptance_test

// This file tests the service with a shop that was written from
// openapi/openapi.yaml alone. It receives webhooks with the standard library.

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	specToken    = regexp.MustCompile(`(?m)^token: (\S+)$`)
	specTimeForm = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$`)
	specUUID7    = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
)

// specObject is a decoded JSON object.
type specObject = map[string]any

// specDelivery is the Delivery of the document.
type specDelivery struct {
	Event         specObject   `json:"event"`
	State         string       `json:"state"`
	Attempts      []specObject `json:"attempts"`
	NextAttemptAt any          `json:"next_attempt_at"`
}

// specService is an HTTP client of the service.
type specService struct{ base, token string }

// call sends a request, which must return the given status. It decodes the
// response into out unless out is nil.
func (s specService) call(t *testing.T, method, path, body string, status int, out any) http.Header {
	t.Helper()
	request, _ := http.NewRequestWithContext(t.Context(), method, s.base+path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+s.token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := (&http.Client{Timeout: 30 * time.Second}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if out != nil {
		err = errors.Join(err, json.Unmarshal(raw, out))
	}
	if err != nil || response.StatusCode != status {
		t.Fatalf("%s %s %s: status %d, want %d (%v): %s", method, path, body, response.StatusCode, status, err, raw)
	}
	h := response.Header
	if h.Get("X-Request-Id") == "" || out != nil && status < 300 && h.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %s: headers %v", method, path, h)
	}
	return h
}

// refused sends a request that must be refused with the given status and code.
func (s specService) refused(t *testing.T, method, path string, status int, code string) {
	t.Helper()
	var problem specObject
	h := s.call(t, method, path, "", status, &problem)
	if problem["code"] != code || problem["request_id"] != h.Get("X-Request-Id") ||
		h.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s: problem %v, want code %s", method, path, problem, code)
	}
}

// events lists the account's events, and checks the fields of each.
func (s specService) events(t *testing.T) (all []specObject) {
	t.Helper()
	s.call(t, "GET", "/api/events", "", http.StatusOK, &all)
	for i, event := range all {
		specTime(t, event["timestamp"])
		ofWebhook := event["type"] == "webhook.disabled"
		if specSeq(event) != i+1 || (event["webhook_id"] != nil) != ofWebhook || (event["card_uuid"] == nil) != ofWebhook ||
			event["credentials"] != nil {
			t.Errorf("event %d is %v", i+1, event)
		}
	}
	return all
}

// pay pays for a card and returns its uuid. If card is empty, it orders a new
// one.
func (s specService) pay(t *testing.T, card, body string) string {
	t.Helper()
	if card == "" {
		var created specObject
		s.call(t, "POST", "/api/cards", `{"usd_amount":"100","currency":"monero"}`, http.StatusCreated, &created)
		card = fmt.Sprint(created["uuid"])
	}
	s.call(t, "POST", "/api/sandbox/cards/"+card+"/payments", body, http.StatusOK, nil)
	return card
}

// register registers a receiver, compares the response with the document, and
// returns the webhook's path.
func (s specService) register(t *testing.T, r *specReceiver, want specObject) (hook string) {
	t.Helper()
	want["url"] = r.url
	body, _ := json.Marshal(want)
	var answer struct {
		Webhook specObject
		Secret  string
	}
	hook = s.call(t, "POST", "/api/webhooks", string(body), http.StatusCreated, &answer).Get("Location")
	maps.Copy(want, specObject{"id": strings.TrimPrefix(hook, "/api/webhooks/"), "enabled": true,
		"disabled_reason": nil, "disabled_at": nil, "failing_since": nil, "created_at": answer.Webhook["created_at"]})
	var read specObject
	s.call(t, "GET", hook, "", http.StatusOK, &read)
	if !reflect.DeepEqual(answer.Webhook, want) || !reflect.DeepEqual(read, want) ||
		!specUUID7.MatchString(fmt.Sprint(want["id"])) ||
		time.Since(specTime(t, want["created_at"])).Abs() > time.Minute {
		t.Errorf("registered as %v, read as %v, want %v, created now", answer.Webhook, read, want)
	}
	encoded, found := strings.CutPrefix(answer.Secret, "whsec_")
	if key, err := base64.StdEncoding.DecodeString(encoded); !found || err != nil || len(key) != 32 {
		t.Errorf("the secret is %q", answer.Secret)
	}
	r.locked(func() { r.secret = answer.Secret })
	return hook
}

// attempted waits until the newest delivery has n attempts. The last one must
// have returned the given status. If most is 0, no further attempt may be
// scheduled; otherwise the next one must be between least and most later.
func (s specService) attempted(t *testing.T, hook string, n, status int, least, most time.Duration) (event string) {
	t.Helper()
	var all []specDelivery
	awaitSpec(t, fmt.Sprintf("attempt %d of the newest delivery", n), func() bool {
		all = nil
		s.call(t, "GET", hook+"/deliveries?limit=1", "", http.StatusOK, &all)
		return len(all) == 1 && len(all[0].Attempts) == n
	})
	d, last, state := all[0], all[0].Attempts[n-1], "delivered"
	if at := specTime(t, last["at"]); most > 0 {
		state = "pending"
		if next := specTime(t, d.NextAttemptAt); next.Before(at.Add(least)) || next.After(time.Now().Add(most)) {
			t.Errorf("the next attempt is at %v, %v after the last", next, next.Sub(at))
		}
	}
	if d.State != state || last["status"] != float64(status) || last["error"] != nil ||
		(d.NextAttemptAt == nil) != (most == 0) {
		t.Errorf("delivery after %d attempts, want last status %d: %v", n, status, d)
	}
	return fmt.Sprint(d.Event["id"])
}

// specRequest is a request of the service to a receiver.
type specRequest struct {
	id, timestamp string
	signatures    []string
	body          []byte
}

// verify verifies a request as the document describes.
func (r specRequest) verify(secret string, now time.Time) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	seconds, err2 := strconv.ParseInt(r.timestamp, 10, 64)
	if err = errors.Join(err, err2); err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return fmt.Errorf("the timestamp %q is not within five minutes of %d (%w)", r.timestamp, now.Unix(), err)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", r.id, r.timestamp, r.body)
	for _, signature := range r.signatures {
		encoded, found := strings.CutPrefix(signature, "v1,")
		if got, err := base64.StdEncoding.DecodeString(encoded); found && err == nil && hmac.Equal(got, mac.Sum(nil)) {
			return nil
		}
	}
	return errors.New("no valid signature")
}

// specReceiver is the shop's webhook receiver.
type specReceiver struct {
	t   *testing.T
	url string

	mu     sync.Mutex
	secret string
	answer http.HandlerFunc      // handles the next request, which otherwise gets 204
	count  int                   // of all requests
	last   specRequest           // of all requests
	events map[string]specObject // by webhook-id: accepted events, except examples
}

func newSpecReceiver(t *testing.T) *specReceiver {
	r := &specReceiver{t: t, events: map[string]specObject{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL + "/hooks/cardmint"
	return r
}

func (r *specReceiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	h := request.Header
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.last = specRequest{h.Get("webhook-id"), h.Get("webhook-timestamp"), strings.Split(h.Get("webhook-signature"), " "),
		body}
	var event specObject
	err = errors.Join(err, r.last.verify(r.secret, time.Now()), json.Unmarshal(body, &event))
	if err != nil || request.Method != http.MethodPost || h.Get("Content-Type") != "application/json" ||
		len(r.last.id) > 64 {
		r.t.Errorf("bad request: %v\n%s %v\n%s", err, request.Method, h, body)
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if answer := r.answer; answer != nil {
		r.answer = nil
		answer(w, request)
		return
	}
	if event["id"] = r.last.id; specSeq(event) != 0 {
		r.events[r.last.id] = event
	}
	w.WriteHeader(http.StatusNoContent)
}

// locked calls do while it holds the lock.
func (r *specReceiver) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// fail makes the receiver return the given status to the next request.
func (r *specReceiver) fail(status int, retryAfter ...string) {
	r.locked(func() {
		r.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Retry-After"] = retryAfter
			http.Error(w, "not now", status)
		}
	})
}

// awaitEvents waits until the receiver has len(want) events, and compares them
// field by field.
func (r *specReceiver) awaitEvents(t *testing.T, want []specObject) {
	t.Helper()
	var got []specObject
	awaitSpec(t, fmt.Sprintf("the receiver to have %d events", len(want)), func() bool {
		r.locked(func() { got = slices.Collect(maps.Values(r.events)) })
		return len(got) >= len(want)
	})
	slices.SortFunc(got, func(a, b specObject) int { return specSeq(a) - specSeq(b) })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("received %v\nlisted   %v", got, want)
	}
}

func specSeq(event specObject) int {
	seq, _ := event["seq"].(float64)
	return int(seq)
}

func specTime(t *testing.T, value any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(value))
	if err != nil || !specTimeForm.MatchString(fmt.Sprint(value)) {
		t.Errorf("%v does not have the documented time format", value)
	}
	return at
}

// awaitSpec calls done until it returns true. It fails the test after 30
// seconds.
func awaitSpec(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 seconds for %s", what)
		}
	}
}

func TestReceiver_BuiltFromSpecAlone_GetsEveryEvent(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits for attempts at real intervals, which takes 6 s")
	}
	t.Parallel()
	dev := newProgram(t, "").serve(t, "dev")
	awaitSpec(t, "the token", func() bool { return specToken.MatchString(dev.Output()) })
	s := specService{dev.url, specToken.FindStringSubmatch(dev.Output())[1]}
	shop, other := newSpecReceiver(t), newSpecReceiver(t)
	hook := s.register(t, shop, specObject{"description": "shop", "types": []any{}})
	otherHook := s.register(t, other, specObject{"description": "", "types": []any{"webhook.disabled"}})

	// The receiver gets the listed events of a paid card.
	s.pay(t, s.pay(t, "", `{"confirmations":0}`), "")
	events := s.events(t)
	if len(events) != 2 || events[0]["type"] != "payment.detected" || events[1]["type"] != "card.generated" {
		t.Fatalf("the events are %v", events)
	}
	shop.awaitEvents(t, events)

	// An example event is not stored. The receiver rejects forged and stale
	// requests.
	example := func() (request specRequest, payload specObject) {
		var attempt specObject
		s.call(t, "POST", hook+"/test", `{"type":"payment.late"}`, http.StatusOK, &attempt)
		shop.locked(func() { request = shop.last })
		_ = json.Unmarshal(request.body, &payload)
		if attempt["status"] != 204.0 || attempt["error"] != nil || payload["seq"] != 0.0 ||
			payload["type"] != "payment.late" {
			t.Errorf("example %v, attempt %v", payload, attempt)
		}
		return request, payload
	}
	request, payload := example()
	s.refused(t, "GET", fmt.Sprint("/api/cards/", payload["card_uuid"]), http.StatusNotFound, "not_found")
	var deliveries []specDelivery
	s.call(t, "GET", hook+"/deliveries", "", http.StatusOK, &deliveries)
	if len(s.events(t)) != 2 || len(deliveries) != 2 {
		t.Error("the example is among the events or the deliveries")
	}
	stale := request.verify(shop.secret, time.Now().Add(6*time.Minute))
	if request.body = append(request.body, ' '); stale == nil || request.verify(shop.secret, time.Now()) == nil {
		t.Error("the receiver accepts a forged or a stale request")
	}

	// After a rotation, requests have two signatures for a day, one by each
	// secret.
	var rotated struct{ Secret string }
	s.call(t, "POST", hook+"/rotate-secret", "", http.StatusOK, &rotated)
	before := shop.secret
	shop.locked(func() { shop.secret = rotated.Secret })
	request, _ = example()
	right := map[string]int{}
	for _, signature := range request.signatures {
		one := specRequest{request.id, request.timestamp, []string{signature}, request.body}
		right[fmt.Sprint(one.verify(before, time.Now()) == nil, one.verify(rotated.Secret, time.Now()) == nil)]++
	}
	if !reflect.DeepEqual(right, map[string]int{"true false": 1, "false true": 1}) {
		t.Errorf("signatures %v, valid by the old and by the new secret: %v", request.signatures, right)
	}

	// The receiver fails, then requests a delay above the maximum of one day,
	// and then accepts the event twice.
	shop.fail(http.StatusInternalServerError)
	card := s.pay(t, "", `{"confirmations":0}`)
	event := s.attempted(t, hook, 1, http.StatusInternalServerError, 4*time.Second, 6*time.Second)
	shop.fail(http.StatusServiceUnavailable, "999999")
	s.call(t, "POST", hook+"/deliveries/"+event+"/redeliver", "", http.StatusAccepted, nil)
	s.attempted(t, hook, 2, http.StatusServiceUnavailable, 24*time.Hour, 24*time.Hour)
	for _, attempt := range []int{3, 4} {
		s.call(t, "POST", hook+"/deliveries/"+event+"/redeliver", "", http.StatusAccepted, nil)
		if again := s.attempted(t, hook, attempt, http.StatusNoContent, 0, 0); again != event {
			t.Errorf("event %s was delivered, want %s", again, event)
		}
	}
	shop.awaitEvents(t, s.events(t))

	// The receiver returns 410. The webhook is disabled and gets only examples.
	// The other webhook receives an event about that.
	shop.fail(http.StatusGone)
	s.pay(t, card, "")
	s.attempted(t, hook, 1, http.StatusGone, 4*time.Second, 6*time.Second)
	var webhook, disabled specObject
	awaitSpec(t, "the event webhook.disabled", func() bool {
		events = s.events(t)
		disabled = events[len(events)-1]
		return disabled["type"] == "webhook.disabled"
	})
	s.call(t, "GET", hook, "", http.StatusOK, &webhook)
	if webhook["enabled"] != false || webhook["disabled_reason"] != "gone" || disabled["webhook_id"] != webhook["id"] {
		t.Errorf("after 410: webhook %v, newest event %v", webhook, disabled)
	}
	other.awaitEvents(t, []specObject{disabled})
	// The rejected event is still due. It may have the same timestamp as
	// disabled_at, so recovery starts a millisecond later.
	recovery := hook + "/recover?since=" +
		specTime(t, webhook["disabled_at"]).Add(time.Millisecond).Format(time.RFC3339Nano)
	s.refused(t, "POST", recovery, http.StatusUnprocessableEntity, "webhook_disabled")
	example()

	// The webhook is enabled again. Due events are sent immediately, and missed
	// events after a recovery.
	s.pay(t, "", "")
	known := s.events(t)
	s.call(t, "PATCH", hook, `{"enabled":true}`, http.StatusOK, &webhook)
	if webhook["enabled"] != true || webhook["disabled_reason"] != nil || webhook["disabled_at"] != nil {
		t.Errorf("after enabling: %v", webhook)
	}
	for _, count := range []int{len(known) - len(events), 0} {
		var recovered specObject
		if s.call(t, "POST", recovery, "", http.StatusAccepted, &recovered); recovered["count"] != float64(count) {
			t.Errorf("%v events recovered, want %d", recovered, count)
		}
	}
	shop.awaitEvents(t, slices.DeleteFunc(slices.Clone(known), func(e specObject) bool { return e["webhook_id"] != nil }))

	// The webhook is deleted. Later events are sent only to the other webhook,
	// which now gets all types.
	s.call(t, "DELETE", hook, "", http.StatusNoContent, nil)
	s.refused(t, "GET", hook, http.StatusNotFound, "not_found")
	s.call(t, "PATCH", otherHook, `{"types":[]}`, http.StatusOK, nil)
	var sent int
	shop.locked(func() { sent = shop.count })
	s.pay(t, "", "")
	other.awaitEvents(t, append([]specObject{disabled}, s.events(t)[len(known):]...))
	if shop.locked(func() { sent = shop.count - sent }); sent > 0 {
		t.Errorf("a deleted webhook received %d requests", sent)
	}
}
