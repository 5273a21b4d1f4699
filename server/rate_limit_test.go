package server_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/store"
)

// firstOf returns the first member of a list in a header.
func firstOf(header string) string {
	first, _, _ := strings.Cut(header, ", ")
	return first
}

// manual is a manual clock.
type manual struct{ past atomic.Int64 }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func (c *manual) now() time.Time          { return noon.Add(time.Duration(c.past.Load())) }
func (c *manual) advance(d time.Duration) { c.past.Add(int64(d)) }

func perMinute(n int64) limit.Policy { return limit.Policy{Quota: n, Window: time.Minute} }

// limitHeaders returns the limits in a response.
func (a answer) limitHeaders() [3]string {
	return [3]string{a.header.Get("RateLimit-Policy"), a.header.Get("RateLimit"), a.header.Get("Retry-After")}
}

func TestLimits_EveryResponse_HasStatus(t *testing.T) {
	t.Parallel()
	now := &manual{}
	d := deploy(t,
		setup{requests: &limit.Config{Token: perMinute(6), Account: perMinute(60), Create: perMinute(2),
			Address: perMinute(60), Now: now.now}})
	token := d.token(t)
	const policy, creating = `"token";q=6;w=60, "account";q=60;w=60`,
		`"token";q=6;w=60, "account";q=60;w=60, "create";q=2;w=60`
	a := d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	equal(t, "list", a.limitHeaders(), [3]string{policy, `"token";r=5;t=10, "account";r=59;t=1`, ""})
	a = d.send(t, http.MethodPost, "/api/cards", token, "{").want(t, http.StatusBadRequest)
	equal(t, "bad request", a.limitHeaders(),
		[3]string{creating, `"token";r=4;t=10, "account";r=58;t=1, "create";r=1;t=30`, ""})
	a = d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	equal(t, "created", a.limitHeaders(), [3]string{creating, `"token";r=3;t=10, "account";r=57;t=1, "create";r=0;t=30`, ""})
	a = d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"))
	a.refused(t, http.StatusTooManyRequests, "rate_limited")
	equal(t, "one too many", a.limitHeaders(),
		[3]string{creating, `"token";r=3;t=10, "account";r=57;t=1, "create";r=0;t=30`, "30"})
	now.advance(9500 * time.Millisecond)
	a = d.send(t, http.MethodGet, "/api/cards/"+missing, token, "").want(t, http.StatusNotFound)
	equal(t, "not found", a.limitHeaders(), [3]string{policy, `"token";r=2;t=1, "account";r=59;t=1`, ""})
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
	a = d.send(t, http.MethodGet, "/api/cards", token, "")
	p := a.refused(t, http.StatusTooManyRequests, "rate_limited")
	equal(t, "over the limit", a.limitHeaders(), [3]string{policy, `"token";r=0;t=1, "account";r=57;t=1`, "1"})
	equal(t, "detail", p.Detail,
		`Your token may send 6 requests in 60 seconds. Try again when the time in "Retry-After" is over.`)
	now.advance(time.Second)
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
}

const missing = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"

func TestLimits_TokenAndAccount(t *testing.T) {
	t.Parallel()
	now := &manual{}
	d := deploy(t, setup{requests: &limit.Config{Token: perMinute(4), Account: perMinute(6), Now: now.now}})
	account := d.account(t)
	_, one := d.tokenOf(t, account, 0)
	_, two := d.tokenOf(t, account, 0)
	get := func(token string, n int) (passed int) {
		for range n {
			if a := d.send(t, http.MethodGet, "/api/currencies", token, ""); a.status == http.StatusOK {
				passed++
			} else {
				a.refused(t, http.StatusTooManyRequests, "rate_limited")
			}
		}
		return passed
	}
	equal(t, "passed of each", []int{get(one, 20), get(two, 20), get(d.token(t), 4)}, []int{4, 2, 4})
}

// A refusal is cheap: it waits for no body, and sends no query.
func TestLimits_AreCheckedBeforeBody(t *testing.T) {
	t.Parallel()
	now := &manual{}
	d := deploy(t, setup{requests: &limit.Config{Token: perMinute(1), Now: now.now}})
	token := d.token(t)
	d.send(t, http.MethodGet, "/api/currencies", token, "").want(t, http.StatusOK)
	for name, rest := range map[string]string{
		"a body that waits to be asked for": "Content-Length: 1048576\r\nExpect: 100-continue\r\n\r\n",
		"a body that is malformed":          "Content-Length: 1\r\n\r\n{",
		"a key that would be refused":       "Idempotency-Key: a b\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			text := "POST /api/cards HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + token +
				"\r\n" + rest
			d.speak(t, d.address(), text).refused(t, http.StatusTooManyRequests, "rate_limited")
		})
	}
}

// from is a header of a request that came through proxies.
func from(hops ...string) []string { return []string{"X-Forwarded-For", strings.Join(hops, again)} }

// Guessing of tokens is stopped, without an effect on other clients.
func TestLimits_Address(t *testing.T) {
	t.Parallel()
	now := &manual{}
	asked := atomic.Int64{}
	d := deploy(t, setup{
		requests: &limit.Config{Token: perMinute(100), Address: perMinute(3), Now: now.now},
		proxies:  []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")},
		wrap:     func(s *store.Store) hooked { return hooked{Store: s, beforeToken: func() { asked.Add(1) }} },
	})
	known, young := d.token(t), d.token(t)
	bad := from("192.0.2.1")
	d.send(t, http.MethodGet, "/api/currencies", known, "", bad...).want(t, http.StatusOK)
	get := func(token string, headers ...string) answer {
		t.Helper()
		return d.send(t, http.MethodGet, "/api/currencies", token, "", headers...)
	}
	get("abc", bad...).refused(t, http.StatusUnauthorized, "unauthorized")
	get("", bad...).refused(t, http.StatusUnauthorized, "unauthorized")
	a := get(deploy(t, setup{}).token(t), bad...)
	a.refused(t, http.StatusUnauthorized, "unauthorized")
	equal(t, "limits of an unknown token", a.limitHeaders(), [3]string{})
	before := asked.Load()
	for _, token := range []string{"abc", "", deploy(t, setup{}).token(t), young} {
		a := get(token, bad...)
		a.refused(t, http.StatusTooManyRequests, "rate_limited")
		equal(t, "limits", a.limitHeaders(), [3]string{`"address";q=3;w=60`, `"address";r=0;t=20`, "20"})
	}
	equal(t, "questions to the store", asked.Load(), before)
	get(known, bad...).want(t, http.StatusOK) // a known token
	get(young, from("192.0.2.2")...).want(t, http.StatusOK)
	get(young, bad...).want(t, http.StatusOK) // known now
	now.advance(20 * time.Second)
	get("abc", bad...).refused(t, http.StatusUnauthorized, "unauthorized")
	get("abc", bad...).refused(t, http.StatusTooManyRequests, "rate_limited")
	a = get(known, bad...).want(t, http.StatusOK)
	// its three requests have been refilled
	equal(t, "what failures cost a token", a.header.Get("RateLimit"), `"token";r=99;t=1`)
}

func TestLimits_Address_IsCheckedBeforeBody(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{requests: &limit.Config{Address: perMinute(1), Now: (&manual{}).now}})
	d.send(t, http.MethodGet, "/api/currencies", "abc", "").refused(t, http.StatusUnauthorized, "unauthorized")
	a := d.speak(t, d.address(),
		"POST /api/cards HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n")
	a.refused(t, http.StatusTooManyRequests, "rate_limited")
	if !a.closed {
		t.Error("the connection stays open although the body is not read")
	}
}

// A revoked token does not allow repeated queries of the store.
func TestLimits_RevokedToken_IsNoLongerKnown(t *testing.T) {
	t.Parallel()
	clock, now := &clock{}, &manual{}
	d := deploy(t,
		setup{clock: clock, requests: &limit.Config{Token: perMinute(100), Address: perMinute(1), Now: now.now}})
	id, token := d.tokenOf(t, d.account(t), 0)
	d.send(t, http.MethodGet, "/api/currencies", token, "").want(t, http.StatusOK)
	need(t, d.accounts.RevokeToken(t.Context(), id))
	clock.advance(5 * time.Second)
	d.send(t, http.MethodGet, "/api/currencies", token, "").refused(t, http.StatusUnauthorized, "unauthorized")
	d.send(t, http.MethodGet, "/api/currencies", token, "").refused(t, http.StatusTooManyRequests, "rate_limited")
}

func TestLimits_HealthAndContract_HaveNone(t *testing.T) {
	t.Parallel()
	now := &manual{}
	d := deploy(t,
		setup{requests: &limit.Config{Token: perMinute(1), Account: perMinute(1), Create: perMinute(1),
			Address: perMinute(1), Now: now.now}})
	for range 5 {
		for _, path := range outsideContract {
			a := d.send(t, http.MethodGet, path, "abc", "").want(t, http.StatusOK)
			equal(t, path, a.limitHeaders(), [3]string{})
		}
	}
	d.send(t, http.MethodGet, "/api/nothing", "abc", "").refused(t, http.StatusNotFound, "not_found")
}

func TestLimits_Off_SetNoHeaders(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{requests: &limit.Config{}})
	token := d.token(t)
	r := d.bare(t, token)
	equal(t, "fields", []int{len(r["Ratelimit"]), len(r["Ratelimit-Policy"])}, []int{0, 0})
}

// bare returns the header of a response that is not validated against the
// contract.
func (d *deployment) bare(t *testing.T, token string) http.Header {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.web.URL+"/api/currencies", nil)
	need(t, err)
	setHeaders(r, token, "", nil)
	res, err := d.web.Client().Do(r)
	need(t, err)
	defer func() { _ = res.Body.Close() }()
	equal(t, "status", res.StatusCode, http.StatusOK)
	return res.Header
}

// Three servers share a database. Two accounts use all servers; one floods
// them.
func TestLimits_FloodOfThreeServers(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, url string) {
		now := &manual{}
		config := &limit.Config{Account: perMinute(60), Now: now.now} // one a second
		first := deploy(t, setup{database: url, clock: &clock{}, requests: config})
		servers := []*deployment{first, first.replica(t), first.replica(t)}
		tick := func() {
			for range 2 { // a process gets the latest counts in its next Tick
				for _, d := range servers {
					need(t, d.requests.Tick(t.Context()))
				}
			}
		}
		tick()
		loud, quiet := first.token(t), first.token(t)
		// flood sends n concurrent requests to each of some servers, and
		// returns how many were admitted.
		flood := func(token string, n int, to ...*deployment) int {
			var passed atomic.Int64
			var all sync.WaitGroup
			for _, d := range to {
				for range 2 {
					all.Go(func() {
						for range n / 2 {
							switch a := d.send(t, http.MethodGet, "/api/currencies", token, ""); a.status {
							case http.StatusOK:
								passed.Add(1)
							case http.StatusTooManyRequests:
							default:
								t.Errorf("%d: %s", a.status, a.body)
							}
						}
					})
				}
			}
			all.Wait()
			return int(passed.Load())
		}
		equal(t, "passed in one server", flood(loud, 80, servers[1]), 60)
		tick()
		equal(t, "passed in the others after it", flood(loud, 20, servers[0], servers[2]), 0)
		now.advance(30 * time.Second)
		tick()
		equal(t, "passed in another later", flood(loud, 40, servers[2]), 30)
		tick()
		now.advance(time.Minute)
		tick()

		total := 0
		for second := range 180 {
			if second%3 == 0 {
				equal(t, "passed of the quiet account", flood(quiet, 2, servers[second/3%3]), 2)
			}
			total += flood(loud, 2, servers...)
			now.advance(time.Second)
			tick()
		}
		// a burst of 60 and 180 over time, plus the requests that two processes
		// admitted before the first exchange
		if total < 180 || total > 60+180+4 {
			t.Errorf("%d of %d requests were admitted in three minutes", total, 180*6)
		}
		for _, d := range servers {
			need(t, d.requests.Close(t.Context()))
		}
		left, err := first.store.UsageOfOthers(t.Context(), "", time.Hour)
		need(t, err)
		equal(t, "left in the database", fmt.Sprint(left), "map[]")
	})
}

// The client reads the limits from every response.
func TestLimits_AreReadByClient(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	var res client.Response
	_, err := d.client(t, d.token(t)).CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: number("150"), Currency: "monero"}, client.WithResponse(&res))
	need(t, err)
	var names []string
	for _, l := range res.Limits() {
		names = append(names, l.Name)
		if l.Left < 1 || l.Left >= l.Quota || l.Reset != time.Second || l.Window != time.Second {
			t.Errorf("%+v of %v", l, res.Header)
		}
	}
	equal(t, "limits", names, []string{"token", "account", "create"})
}
