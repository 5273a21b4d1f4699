package server_test

import (
	"fmt"

	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/store"
)

// Slots per kind of requests.
const (
	places        = 256 // slots of createCard, and of reads
	unknownPlaces = 64
)

// dam blocks its callers while it is closed.
type dam struct {
	mu      sync.Mutex
	closed  chan struct{} // nil while it is open
	arrived chan struct{}
	passed  atomic.Int64 // arrivals in all
}

func newDam() *dam { return &dam{arrived: make(chan struct{}, 10_000)} }

func (d *dam) pass() {
	d.passed.Add(1)
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed != nil {
		d.arrived <- struct{}{}
		<-closed
	}
}

// shut closes the dam, and returns a function that opens it.
func (d *dam) shut(t *testing.T) (open func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	closed := make(chan struct{})
	d.closed = closed
	var once sync.Once
	open = func() {
		once.Do(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.closed = nil
			close(closed)
		})
	}
	t.Cleanup(open)
	return open
}

// await waits until n calls are blocked.
func (d *dam) await(t *testing.T, n int) {
	t.Helper()
	late := time.After(time.Minute)
	for i := range n {
		select {
		case <-d.arrived:
		case <-late:
			t.Fatalf("only %d of %d requests arrived", i, n)
		}
	}
}

// shed fails the test unless a request was refused because of overload.
func (a answer) shed(t *testing.T) {
	t.Helper()
	a.refused(t, http.StatusServiceUnavailable, "unavailable")
	if again, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || again < 1 || again > 5 {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
}

// atOnce sends n concurrent requests, and returns a function that waits for
// their responses.
func atOnce(n int, send func(i int) answer) (answers func() []answer) {
	all := make([]answer, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { all[i] = send(i) })
	}
	return func() []answer {
		wait.Wait()
		return all
	}
}

// While the database hangs, requests of a kind use their slots and no more.
// Further ones are refused immediately, without a query; other kinds are served
// as usual.
func TestOverload_OneKind_OtherKindsAreServed(t *testing.T) {
	t.Parallel()
	const more = 40
	for kind, tt := range map[string]struct {
		method, path string
		status       int
	}{"create": {http.MethodPost, "/api/cards", http.StatusCreated},
		"read": {http.MethodGet, "/api/cards/{uuid}", http.StatusOK}} {
		t.Run(kind, func(t *testing.T) {
			creating, reading, m := newDam(), newDam(), &tally{}
			d := deploy(t, setup{pool: 2 * places, meter: m, wrap: func(s *store.Store) hooked {
				return hooked{Store: s, beforeInsert: creating.pass, beforeCard: reading.pass}
			}})
			token, other, third := d.token(t), d.token(t), d.token(t)
			path, body := "/api/cards", orderBody("50")
			dam := creating
			if kind == "read" {
				path, body, dam = "/api/cards/"+missing, "", reading
				tt.status = http.StatusNotFound
			}
			ask := func(i int) answer { return d.serve(t, tt.method, path, []string{token, other}[i%2], body) }
			for _, known := range []string{token, other, third} { // so that no request waits for its token to be looked up
				d.serve(t, http.MethodGet, "/api/currencies", known, "").want(t, http.StatusOK)
			}
			open := dam.shut(t)
			held := atOnce(places-1, ask)
			dam.await(t, places-1)
			last := atOnce(1, func(int) answer { return d.serve(t, tt.method, path, third, body) })
			dam.await(t, 1) // the reserved slot
			for _, a := range atOnce(more, ask)() {
				a.shed(t)
			}
			refusals := 0
			for _, line := range d.log.entries(t) {
				if line["status"] == float64(http.StatusServiceUnavailable) {
					refusals++
					equal(t, "level of a refusal", line["level"], any("WARN"))
				}
			}
			equal(t, "refusals in the log", refusals, more)
			equal(t, "requests that reached the database", dam.passed.Load(), places)
			m.mu.Lock()
			equal(t, "refusals", fmt.Sprint(m.sheds), fmt.Sprint(strings.Fields(strings.Repeat(kind+" ", more))))
			m.mu.Unlock()
			for _, other := range []string{"/livez", "/readyz", "/openapi.yaml", "/api/currencies", "/api/cards?limit=1",
				"/api/cards", "/api/events", "/api/webhooks"} {
				if kind == "read" &&
					(strings.HasSuffix(other, "limit=1") || strings.HasSuffix(other, "events") ||
						strings.HasSuffix(other, "webhooks")) {
					d.serve(t, http.MethodGet, other, token, "").shed(t) // same kind
					continue
				}
				d.serve(t, http.MethodGet, other, token, "").want(t, http.StatusOK)
			}
			if kind == "read" {
				d.serve(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
			}
			d.serve(t, http.MethodDelete, "/api/webhooks/"+missing, token, "").want(t, http.StatusNotFound)
			open()
			for _, a := range append(held(), last()...) {
				a.want(t, tt.status)
			}
			ask(0).want(t, tt.status)
		})
	}
}

// Clients can make up tokens: lookups of unknown tokens take no slots of known
// tokens.
func TestOverload_UnknownTokens_DoNotBlockKnownTokens(t *testing.T) {
	t.Parallel()
	looking, m := newDam(), &tally{}
	d := deploy(t,
		setup{meter: m, wrap: func(s *store.Store) hooked { return hooked{Store: s, beforeToken: looking.pass} }})
	stranger := deploy(t, setup{})
	owner := stranger.account(t)
	var tokens [unknownPlaces + 1]string
	for i := range tokens {
		_, tokens[i] = stranger.tokenOf(t, owner, 0)
	}
	known := d.token(t)
	ask := func(token string) answer { return d.serve(t, http.MethodGet, "/api/currencies", token, "") }
	ask(known).want(t, http.StatusOK)
	open := looking.shut(t)
	held := atOnce(unknownPlaces, func(i int) answer { return ask(tokens[i]) })
	looking.await(t, unknownPlaces)
	ask(tokens[unknownPlaces]).shed(t)
	m.mu.Lock()
	equal(t, "refusals", m.sheds, []string{"authenticate"})
	m.mu.Unlock()
	again := atOnce(1, func(int) answer { return ask(known) }) // this token's lookup may be due again
	open()
	again()[0].want(t, http.StatusOK)
	for _, a := range held() {
		a.refused(t, http.StatusUnauthorized, "unauthorized")
	}
}

// stuck is a client that does not read its response until it is released.
type stuck struct {
	*httptest.ResponseRecorder
	dam *dam
}

func (s stuck) Write(b []byte) (int, error) {
	s.dam.pass()
	return s.ResponseRecorder.Write(b)
}

// A slow reader holds a connection, but no slot.
func TestOverload_SlowReaders_HoldNoSlot(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	d.serve(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	sending := newDam()
	open := sending.shut(t)
	const slow = places + 10
	var all sync.WaitGroup
	for i := range slow {
		all.Go(func() {
			target := [2]string{"/api/cards?limit=1", "/api/events"}[i%2]
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
			setHeaders(r, token, "", nil)
			w := stuck{httptest.NewRecorder(), sending}
			d.handler.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("status %d", w.Code)
			}
		})
		sending.await(t, 1) // sequentially, so that none is queued
	}
	d.serve(t, http.MethodGet, "/api/cards?limit=1", token, "").want(t, http.StatusOK)
	open()
	all.Wait()
}

// Each poll reads one tag, and a token's limit bounds the number of polls.
func TestOverload_Pollers_ReadOnlyChangedCards(t *testing.T) {
	t.Parallel()
	const quota, polls, pollers = 200, 300, 20
	var cards atomic.Int64
	d := deploy(t,
		setup{requests: &limit.Config{Token: perMinute(quota), Now: (&manual{}).now}, wrap: func(s *store.Store) hooked {
			return hooked{Store: s, beforeCard: func() { cards.Add(1) }}
		}})
	account := d.account(t)
	_, owner := d.tokenOf(t, account, 0)
	_, storming := d.tokenOf(t, account, 0)
	_, other := d.tokenOf(t, account, 0)
	path := d.serve(t, http.MethodPost, "/api/cards", owner, orderBody("50")).want(t,
		http.StatusCreated).header.Get("Location")
	etag := d.serve(t, http.MethodGet, path, owner, "").want(t, http.StatusOK).header.Get("ETag")
	poll := func(token string) answer { return d.serve(t, http.MethodGet, path, token, "", ifNoneMatch, etag) }
	var unchanged, refused atomic.Int64
	all := atOnce(pollers, func(int) (last answer) {
		for range polls / pollers {
			switch last = poll(storming); last.status {
			case http.StatusNotModified:
				unchanged.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
			}
		}
		return last
	})
	all()
	poll(other).want(t, http.StatusNotModified)
	equal(t, "unchanged, refused", []int64{unchanged.Load(), refused.Load()}, []int64{quota, polls - quota})
	equal(t, "cards that were read, once for the tag", cards.Load(), 1)
	d.serve(t, http.MethodGet, path, storming, "").refused(t, http.StatusTooManyRequests, "rate_limited")
}

// A request that is repeated after Retry-After is admitted by every replica.
// Retry-After is never less than the reset of the exceeded limit.
func TestOverload_RetryAfter_IsAdmitted(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, url string) {
		now := &manual{}
		first := deploy(t,
			setup{database: url, clock: &clock{},
				requests: &limit.Config{Token: perMinute(7), Account: perMinute(11), Now: now.now}})
		servers := []*deployment{first, first.replica(t), first.replica(t)}
		tick := func() {
			for range 2 {
				for _, d := range servers {
					need(t, d.requests.Tick(t.Context()))
				}
			}
		}
		tick()
		account := first.account(t)
		_, one := first.tokenOf(t, account, 0)
		_, two := first.tokenOf(t, account, 0)
		for round := range 30 {
			for i := range 30 {
				servers[(round+i)%3].serve(t, http.MethodGet, "/api/currencies", [2]string{one, two}[i%2], "")
			}
			tick() // exchanges counts among replicas
			d := servers[round%3]
			a := d.serve(t, http.MethodGet, "/api/currencies", one, "")
			a.refused(t, http.StatusTooManyRequests, "rate_limited")
			again, err := strconv.Atoi(a.header.Get("Retry-After"))
			need(t, err)
			for _, is := range strings.Split(a.header.Get("RateLimit"), ", ") {
				var left, t64 int
				_, rest, _ := strings.Cut(is, ";")
				if _, err := fmt.Sscanf(rest, "r=%d;t=%d", &left, &t64); err != nil || left == 0 && again < t64 {
					t.Errorf("Retry-After is %d with %s: %v", again, is, err)
				}
			}
			now.advance(time.Duration(again) * time.Second)
			tick()
			d.serve(t, http.MethodGet, "/api/currencies", one, "").want(t, http.StatusOK)
		}
	})
}
