package supplier_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
)

const (
	holder       = "ich_1MsKAB2eZvKYlo2C3eZ2BdvK"
	pageSecret   = "a secret of the page, 32 bytes or more"
	stripeCanary = "4242424242424242" // in all free text from Stripe
)

// fakeStripe is Stripe Issuing according to its documentation: the answer to a
// key, including an error, is kept for 24 hours, and then forgotten. It can
// fail on request.
type fakeStripe struct {
	*httptest.Server
	mu     sync.Mutex
	ahead  time.Duration // of real time
	cards  []fakeCard    // oldest first
	saved  map[string]savedAnswer
	faults map[string][]string // next failures by operation, in order
	fault  func(operation string) string
	asked  []string // operations
	made   int      // number of executed creations
	last   *http.Request
	form   url.Values // of the last creation

	holder, balance string // JSON
}

type fakeCard map[string]any

func (c fakeCard) id() string { return c["id"].(string) }

// says returns a value of a card's metadata.
func (c fakeCard) says(name string) string { return c["metadata"].(map[string]string)[name] }

// limit returns the first spending limit.
func (c fakeCard) limit() map[string]any {
	return c["spending_controls"].(map[string]any)["spending_limits"].([]map[string]any)[0]
}

type savedAnswer struct {
	at     time.Time
	form   string
	status int
	body   []byte
}

func newFakeStripe(t *testing.T) *fakeStripe {
	f := &fakeStripe{saved: map[string]savedAnswer{}, faults: map[string][]string{},
		holder: `{"id":"` + holder +
			`","object":"issuing.cardholder","status":"active","requirements":{"disabled_reason":null,"past_due":[]}}`,
		balance: `{"object":"balance","available":[{"amount":1,"currency":"usd"}],"issuing":{"available":[{"amount":5,"currency":"eur"},{"amount":123456,"currency":"usd"}]}}`}
	f.Server = httptest.NewServer(f)
	f.Config.SetKeepAlivesEnabled(false) // keeps net/http from repeating requests
	t.Cleanup(f.Close)
	return f
}

func (f *fakeStripe) now() time.Time { return time.Now().Add(f.ahead) }

// pass lets time pass.
func (f *fakeStripe) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += d
}

// fail makes the next operations of a kind fail, in order.
func (f *fakeStripe) fail(operation string, faults ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[operation] = faults
}

// failOnly makes one operation fail once, and no other.
func (f *fakeStripe) failOnly(operation, fault string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = map[string][]string{operation: {fault}}
}

// unfailed returns the number of remaining faults of an operation.
func (f *fakeStripe) unfailed(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.faults[operation])
}

// failBy makes fault choose the fault of each operation.
func (f *fakeStripe) failBy(fault func(operation string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// supplier returns a supplier that uses the fake.
func (f *fakeStripe) supplier(t *testing.T) *supplier.Stripe {
	t.Helper()
	s, err := supplier.NewStripe(supplier.StripeConfig{Key: "rk_test_123", Cardholder: holder, URL: f.URL, Insecure: true,
		Page: "https://cards.example/show", PageSecret: pageSecret, Now: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.now()
		}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// of returns the cards that were created for a key.
func (f *fakeStripe) of(key string) (cards []fakeCard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.cards {
		if c.says("cardmint_key") == key {
			cards = append(cards, c)
		}
	}
	return cards
}

// all returns all cards.
func (f *fakeStripe) all() []fakeCard {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.cards)
}

// swap sets the status of a card, and returns the previous one; "" keeps it.
func (f *fakeStripe) swap(c fakeCard, status string) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := c["status"]
	if status != "" {
		c["status"] = status
	}
	return old
}

// total returns the number of cards.
func (f *fakeStripe) total() int { return len(f.all()) }

// calls returns the operations since the last call.
func (f *fakeStripe) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func (f *fakeStripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	operation := map[string]string{"POST /v1/issuing/cards": "create", "GET /v1/issuing/cards": "list",
		"GET /v1/balance":                       "balance",
		"GET /v1/issuing/cardholders/" + holder: "holder"}[r.Method+" "+r.URL.Path]
	if strings.HasPrefix(r.URL.Path, "/v1/issuing/cards/ic_") {
		operation = map[string]string{"GET": "retrieve", "POST": "update"}[r.Method]
	}
	f.asked, f.last = append(f.asked, operation), r
	fault := ""
	if queue := f.faults[operation]; len(queue) > 0 {
		fault, f.faults[operation] = queue[0], queue[1:]
	} else if f.fault != nil {
		fault = f.fault(operation)
	}
	if err := r.ParseForm(); err != nil || r.Header.Get("Authorization") != "Bearer rk_test_123" || operation == "" {
		panic(fmt.Sprintf("%s %s: %v", r.Method, r.URL, err))
	}
	w.Header().Set("Request-Id", "req_"+strconv.Itoa(len(f.asked))) // telemetry needs it
	status, body := f.answer(w, operation, fault, r)
	switch fault {
	case "cut", "unread":
		panic(http.ErrAbortHandler)
	case "half":
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		body = body[:len(body)/2]
	case "garbage":
		body = []byte("<html>" + stripeCanary)
	case "empty":
		body = []byte("{}")
	case "endless":
		body = make([]byte, 8<<20+1)
	case "null":
		body = []byte("null")
	case "a text":
		body = []byte(`"ic_1Fake1"`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// refusals returns answers to requests that were not executed.
var refusals = map[string]struct {
	status int
	body   string
}{
	"unread": {},
	"busy": {429,
		`{"error":{"type":"invalid_request_error","code":"rate_limit","message":"` + stripeCanary + `"}}`},
	"busy, no JSON": {429, stripeCanary},
	"locked": {429,
		`{"error":{"type":"invalid_request_error","code":"lock_timeout","message":"` + stripeCanary + `"}}`},
	"in use": {409,
		`{"error":{"type":"idempotency_error","code":"idempotency_key_in_use","message":"` + stripeCanary + `"}}`},
	"wrong key": {401,
		`{"error":{"type":"invalid_request_error","message":"Invalid API Key provided: rk_test_` + stripeCanary + `"}}`},
	"no permission": {403,
		`{"error":{"type":"invalid_request_error","code":"` + stripeCanary + `","message":"` + stripeCanary + `"}}`},
	"missing": {404,
		`{"error":{"type":"invalid_request_error","code":"resource_missing","param":"id","message":"` + stripeCanary + `"}}`},
	"down":        {503, stripeCanary},
	"moved":       {302, `{"object":"issuing.card","id":"ic_1"}`},
	"no content":  {204, ``},
	"proxy's 400": {400, `<html>` + stripeCanary},
	"proxy's 402": {402, `{"error":"` + stripeCanary + `"}`},
}

// errors returns answers to the request itself, which are stored with the key.
var keptErrors = map[string]struct {
	status int
	body   string
}{
	"invalid": {400,
		`{"error":{"type":"invalid_request_error","code":"parameter_missing","param":"spending_controls[spending_limits][0][amount]","message":"` + stripeCanary + `"}}`},
	"no code": {400,
		`{"error":{"type":"invalid_request_error","code":"` + stripeCanary + `","param":"` + stripeCanary + `","message":"` +
			stripeCanary + `"}}`},
	"too large": {400,
		`{"error":{"type":"invalid_request_error","code":"amount_too_large","message":"` + stripeCanary + `"}}`},
	"no holder": {400,
		`{"error":{"type":"invalid_request_error","code":"cardholder_phone_number_required","param":"cardholder","message":"` + stripeCanary + `"}}`},
	"unavailable": {402, `{"error":{"type":"invalid_request_error","message":"` + stripeCanary + `"}}`},
	"declined": {402,
		`{"error":{"type":"card_error","code":"card_declined","decline_code":"do_not_honor","message":"` + stripeCanary +
			`"}}`},
	"no funds": {402,
		`{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds","message":"` +
			stripeCanary + `"}}`},
	"no balance": {400,
		`{"error":{"type":"invalid_request_error","code":"balance_insufficient","message":"` + stripeCanary + `"}}`},
	"failed":          {500, `{"error":{"type":"api_error","message":"` + stripeCanary + `"}}`},
	"created, failed": {500, `{"error":{"type":"api_error","message":"` + stripeCanary + `"}}`},
}

func (f *fakeStripe) answer(w http.ResponseWriter, operation, fault string, r *http.Request) (int, []byte) {
	if refused, is := refusals[fault]; is {
		if refused.status == 429 {
			w.Header().Set("Retry-After", "7")
		}
		w.Header().Set("Location", f.URL+"/elsewhere")
		return refused.status, []byte(refused.body)
	}
	switch operation {
	case "create":
		return f.create(w, fault, r)
	case "list":
		return 200, f.list(r.Form, fault)
	case "balance":
		return 200, []byte(f.balance)
	case "holder":
		return 200, []byte(f.holder)
	}
	i := slices.IndexFunc(f.cards, func(c fakeCard) bool {
		return c.id() == strings.TrimPrefix(r.URL.Path, "/v1/issuing/cards/")
	})
	switch {
	case i < 0:
		return refusals["missing"].status, []byte(refusals["missing"].body)
	case keptErrors[fault].status != 0:
		return keptErrors[fault].status, []byte(keptErrors[fault].body)
	case operation == "update" && fault != "ignored":
		f.cards[i]["status"] = r.Form.Get("status")
	}
	var expand []string
	for name, values := range r.Form {
		if strings.HasPrefix(name, "expand[") {
			expand = append(expand, values...)
		}
	}
	return 200, encode(f.cards[i], expand...)
}

func (f *fakeStripe) create(w http.ResponseWriter, fault string, r *http.Request) (int, []byte) {
	key, form := r.Header.Get("Idempotency-Key"), r.PostForm.Encode()
	f.form = r.PostForm
	if old, is := f.saved[key]; is && f.now().Sub(old.at) < 24*time.Hour {
		if old.form != form {
			return 400, []byte(`{"error":{"type":"idempotency_error","message":"` + stripeCanary + `"}}`)
		}
		w.Header().Set("Idempotent-Replayed", "true")
		return old.status, old.body
	}
	kept, is := keptErrors[fault]
	status, body := kept.status, []byte(kept.body)
	if !is || fault == "created, failed" {
		c := f.make(r.PostForm)
		if !is {
			status, body = 200, encode(c)
		}
	}
	f.saved[key] = savedAnswer{f.now(), form, status, body}
	return status, body
}

func (f *fakeStripe) make(form url.Values) fakeCard {
	f.made++
	cents, err := strconv.Atoi(form.Get("spending_controls[spending_limits][0][amount]"))
	if err != nil {
		panic(err)
	}
	metadata := map[string]string{}
	for name := range form {
		if says, is := strings.CutPrefix(name, "metadata["); is {
			metadata[strings.TrimSuffix(says, "]")] = form.Get(name)
		}
	}
	body := fmt.Sprintf("99%013d", 7919*f.made)
	c := fakeCard{"object": "issuing.card", "id": fmt.Sprintf("ic_1Fake%d", f.made), "created": f.now().Unix(),
		"currency":   form.Get("currency"),
		"cardholder": map[string]any{"id": form.Get("cardholder"), "object": "issuing.cardholder"},
		"type":       form.Get("type"), "status": form.Get("status"), "exp_month": 3, "exp_year": time.Now().Year() + 3,
		"metadata": metadata,
		"number":   body + card.LuhnDigit(body), "cvc": fmt.Sprintf("%03d", f.made%1000), "latest_fraud_warning": nil,
		"spending_controls": map[string]any{
			"spending_limits": []map[string]any{
				{"amount": cents, "interval": form.Get("spending_controls[spending_limits][0][interval]"),
					"categories": []string{}}}, "spending_limits_currency": "usd"}}
	f.cards = append(f.cards, c)
	return c
}

func (f *fakeStripe) list(form url.Values, fault string) []byte {
	after, _ := strconv.ParseInt(form.Get("created[gte]"), 10, 64)
	limit, err := strconv.Atoi(form.Get("limit"))
	if err != nil || form.Get("cardholder") != holder {
		panic(form.Encode())
	}
	data, more := []json.RawMessage{}, false
	last := form.Get("starting_after")
	skip := last != ""
	for _, c := range slices.Backward(f.cards) {
		if skip {
			skip = c.id() != last
			continue
		}
		if c["created"].(int64) < after {
			continue
		}
		if more = len(data) == limit; more {
			break
		}
		data = append(data, encode(c))
	}
	page := map[string]any{"object": "list", "url": "/v1/issuing/cards", "has_more": more, "data": data}
	switch fault {
	case "stuck":
		page["data"], page["has_more"] = []any{}, true
	case "no end":
		delete(page, "has_more")
	case "no card":
		page["data"] = []any{nil}
	case "other things":
		page["data"] = []any{map[string]any{"object": "issuing.cardholder", "id": "ic_1"}}
	case "no list":
		page["object"] = "issuing.card"
	}
	text, _ := json.Marshal(page)
	return text
}

// encode returns a card's JSON. It omits the fields that Stripe omits unless
// expand contains them.
func encode(c fakeCard, expand ...string) []byte {
	c = maps.Clone(c)
	for _, secret := range []string{"number", "cvc"} {
		if !slices.Contains(expand, secret) {
			delete(c, secret)
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return text
}

// submitted submits a request, and returns it with its card.
func (f *fakeStripe) submitted(t *testing.T, s *supplier.Stripe, r issue.Request) (issue.Request, fakeCard) {
	t.Helper()
	a, err := s.Submit(t.Context(), r)
	if err != nil || a.Outcome != issue.Issued || a.Flaw != "" {
		t.Fatalf("%s %q, %v", a.Outcome, a.Flaw, err)
	}
	r.Reference = a.Reference
	f.calls()
	return r, f.all()[f.total()-1]
}
