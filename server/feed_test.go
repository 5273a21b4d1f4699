package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/server"
)

const (
	waitsPerToken   = 16
	waitsPerAccount = 128
	waitsAtOnce     = 500
)

// ask sends a request without waiting for its response.
func (d *deployment) ask(t testing.TB, target, token string, headers ...string) <-chan answer {
	t.Helper()
	answered := make(chan answer, 1)
	go func() { answered <- d.send(t, http.MethodGet, target, token, "", headers...) }()
	return answered
}

// awaited polls for events until a request has its response.
func (d *deployment) awaited(t testing.TB, answered <-chan answer) answer {
	t.Helper()
	for {
		need(t, d.webhooks.Tick(t.Context()))
		select {
		case a := <-answered:
			return a
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stream is a client that follows the feed.
type stream struct {
	t   testing.TB
	d   *deployment
	res *http.Response
	in  *bufio.Reader
}

// open requests a stream of events from a base URL.
func (d *deployment) open(t testing.TB, base, query, token string, headers ...string) *stream {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/events"+query, nil)
	need(t, err)
	setHeaders(r, token, "", append([]string{"Accept", "text/event-stream"}, headers...))
	res, err := http.DefaultClient.Do(r)
	need(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	checkResponse(t, http.MethodGet, r.URL, res, nil, true)
	return &stream{t, d, res, bufio.NewReader(res.Body)}
}

// block reads lines up to an empty one.
func (s *stream) block() (lines []string, err error) {
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return lines, err
		}
		if line == "\n" {
			return lines, nil
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
}

// next returns the next block, while the service polls for events.
func (s *stream) next() []string {
	s.t.Helper()
	got := make(chan []string, 1)
	go func() {
		lines, err := s.block()
		if err != nil {
			lines = append(lines, "error: "+err.Error())
		}
		got <- lines
	}()
	for {
		need(s.t, s.d.webhooks.Tick(s.t.Context()))
		select {
		case lines := <-got:
			return lines
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// begun reads the first block, which has no event.
func (s *stream) begun() *stream {
	s.t.Helper()
	equal(s.t, "status", s.res.StatusCode, http.StatusOK)
	equal(s.t, "headers",
		[]string{s.res.Header.Get("Content-Type"), s.res.Header.Get("X-Accel-Buffering"), s.res.Header.Get("Cache-Control"),
			s.res.Header.Get("Content-Length"), s.res.Header.Get("Content-Encoding")},
		[]string{"text/event-stream", "no", "no-store", "", ""})
	equal(s.t, "first block", s.next(), []string{"retry: 3000"})
	return s
}

// wants fails the test unless the next block, except heartbeats, is this event
// in the form of the list.
func (s *stream) wants(token string, e card.Event) {
	s.t.Helper()
	listed := bodyOf[[]json.RawMessage](s.t,
		s.d.send(s.t, http.MethodGet, fmt.Sprintf("/api/events?limit=1&after=%d", e.Seq-1), token, ""))
	got := s.next()
	for len(got) == 1 && got[0] == ":" {
		got = s.next()
	}
	equal(s.t, "event", got,
		[]string{fmt.Sprintf("id: %d", e.Seq), "event: " + string(e.Type), "data: " + string(listed[0])})
}

func TestWait_Event_ReturnsImmediately(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token, account := d.owner(t)
		of := d.cardOf(t, account)
		first := d.ask(t, "/api/events?wait=60", token)
		other := d.ask(t, "/api/events?wait=2&card="+uuid.Must(uuid.NewV7()).String(), token)
		happened := d.happen(t, account, card.EventDetected)
		equal(t, "events", bodyOf[[]struct{ ID uuid.UUID }](t, d.awaited(t, first).want(t, http.StatusOK))[0].ID,
			happened[0].ID)
		d.send(t, http.MethodGet, "/api/events?wait=60", token, "").want(t, http.StatusOK) // no need to wait
		second := d.ask(t, "/api/events?wait=60&after=1&card="+of.String(), token)
		d.happen(t, account, card.EventWebhookDisabled, card.EventUnderpaid)
		events := bodyOf[[]struct{ Seq int64 }](t, d.awaited(t, second).want(t, http.StatusOK))
		if len(events) != 1 || events[0].Seq != 3 {
			t.Errorf("events of the card: %v", events)
		}
		equal(t, "another card", (<-other).want(t, http.StatusOK).body, "[]\n")
	})
}

// A wait that times out returns the existing events, even without a poll.
func TestWait_TimeIsUp_ReturnsEvents(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token, account := d.owner(t)
	d.cardOf(t, account)
	equal(t, "without an event", d.send(t, http.MethodGet, "/api/events?wait=1", token, "").want(t, http.StatusOK).body,
		"[]\n")
	answered := d.ask(t, "/api/events?wait=2", token)
	d.happen(t, account, card.EventDetected, card.EventGenerated)
	if n := len(bodyOf[[]any](t, (<-answered).want(t, http.StatusOK))); n != 2 {
		t.Errorf("%d events", n)
	}
}

func TestEvents_PagesOfOneCard_LinkToNext(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token, account := d.owner(t)
	d.happen(t, account, card.EventDetected, card.EventWebhookDisabled, card.EventUnderpaid, card.EventGenerated)
	var seqs []int64
	equal(t, "pages", d.walk(t, "/api/events?limit=1&card="+d.cardOf(t, account).String(), token, func(a answer) {
		for _, e := range bodyOf[[]struct{ Seq int64 }](t, a) {
			seqs = append(seqs, e.Seq)
		}
	}), 3)
	equal(t, "events", seqs, []int64{1, 3, 4})
	d.send(t, http.MethodGet, "/api/events?card="+d.cardOf(t, account).String(), d.token(t), "").want(t, http.StatusOK)
	stranger := d.send(t, http.MethodGet, "/api/events?card="+d.cardOf(t, account).String(), d.token(t), "").want(t,
		http.StatusOK)
	equal(t, "another account's", stranger.body, "[]\n")
	for query, pointer := range map[string]string{"?wait=61": "query/wait", "?wait=-1": "query/wait",
		"?wait=x": "query/wait", "?card=1": "query/card",
		"?after=99&wait=60": "query/after"} {
		d.send(t, http.MethodGet, "/api/events"+query, token, "").invalid(t, pointer)
	}
	d.send(t, http.MethodGet, "/api/events?after=1", token, "", "Last-Event-ID", "99").invalid(t, "header/Last-Event-ID")
	d.send(t, http.MethodGet, "/api/events", token, "", "Last-Event-ID", "x", "Accept", "text/event-stream").invalid(t,
		"header/Last-Event-ID")
	d.send(t, http.MethodGet, "/api/events", token, "", "Last-Event-ID", "99", "Accept", "text/event-stream").invalid(t,
		"header/Last-Event-ID")
}

func TestEventStream_SendsEventsImmediately(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, heartbeat: 300 * time.Millisecond})
		token, account := d.owner(t)
		of := d.cardOf(t, account)
		proxy := proxied(t, d.web.URL)
		streams := []*stream{d.open(t, d.web.URL, "", token).begun(), d.open(t, proxy, "", token).begun()}
		all := d.happen(t, account, card.EventDetected, card.EventWebhookDisabled, card.EventFeedReset, card.EventGenerated)
		all = append(all, d.happen(t, account, card.EventLate)...)
		for _, s := range streams {
			for _, e := range all {
				s.wants(token, e)
			}
		}
		equal(t, "idle", d.open(t, proxy, "?after=4&card="+uuid.Must(uuid.NewV7()).String(), token).begun().next(),
			[]string{":"})
		again := d.open(t, proxy, "?after=1&card="+of.String(), token, "Last-Event-ID", "3").begun()
		again.wants(token, all[3])
		again.wants(token, all[4])
		again.wants(token, d.happen(t, account, card.EventWebhookDisabled, card.EventReversed)[1])
	})
}

// proxied returns the URL of a reverse proxy for a service.
func proxied(t testing.TB, to string) string {
	t.Helper()
	target, err := url.Parse(to)
	need(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// A client that accepts both types gets JSON, as before streams existed.
func TestEventStream_RequiresAcceptHeader(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for _, accept := range []string{absent, "*/*", "application/json", "text/*", "application/json, text/event-stream",
		"text/event-stream;q=0",
		"text/event-stream;q=0.5, application/json", "text/event-streams", ";"} {
		equal(t, accept, d.send(t, http.MethodGet, "/api/events", token, "", "Accept", accept).want(t, http.StatusOK).body,
			"[]\n")
	}
	for _, accept := range []string{"text/event-stream", "text/event-stream, */*",
		"Text/Event-Stream;q=0.9, application/json;q=0.8"} {
		d.open(t, d.web.URL, "", token, "Accept", accept).begun()
	}
}

// A stream reads page by page, and a stalled reader is aborted.
func TestEventStream_SlowReader_IsAborted(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits for a reader that does not read")
	}
	t.Parallel()
	d := deploy(t, setup{})
	token, account := d.owner(t)
	d.happen(t, account, card.EventDetected)
	const many = 20_000
	_, err := rig.OpenSQL(t, d.database).Exec(`INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, created_at)
		WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		SELECT account_id, i, printf('019aa1c9-f868-7cef-8e4e-%012x', i), type, card_uuid, status, payment_state, created_at FROM n, events WHERE seq = 1`, many)
	need(t, err)
	_, err = rig.OpenSQL(t, d.database).Exec(`UPDATE accounts SET last_seq = $1 WHERE id = $2`, many, account.String())
	need(t, err)
	l := listen(t, unbent)
	l.patience, l.sendBuffer = time.Second, 16<<10
	serveOn(t, l, d.handler)
	s := d.open(t, "http://"+l.Addr().String(), "", token).begun()
	conn := dial(t, l.Addr().String())
	need(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err = fmt.Fprintf(conn,
		"GET /api/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n", token)
	need(t, err)
	for seq := range many {
		lines, err := s.block()
		need(t, err)
		if want := fmt.Sprintf("id: %d", seq+1); lines[0] != want {
			t.Fatalf("event %q, want %q", lines[0], want)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(d.log.String(),
		`"client_gone":true`); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a stalled reader was not aborted")
		}
	}
}

func TestWait_Concurrency_IsLimited(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	account := d.account(t)
	_, token := d.tokenOf(t, account, 0)
	var open []*stream
	for range waitsPerToken {
		open = append(open, d.open(t, d.web.URL, "", token).begun())
	}
	refused := func(a answer, policy, left string) {
		t.Helper()
		a.refused(t, http.StatusTooManyRequests, "quota_exceeded")
		first := func(name string) string { one, _, _ := strings.Cut(a.header.Get(name), ","); return one }
		equal(t, "headers", []string{first("Retry-After"), first("RateLimit-Policy"), first("RateLimit")},
			[]string{"5", policy, left})
	}
	refused(d.send(t, http.MethodGet, "/api/events?wait=60", token, ""), `"waits-of-token";q=16`, `"waits-of-token";r=0`)
	refused(d.send(t, http.MethodGet, "/api/events", token, "", "Accept", "text/event-stream"), `"waits-of-token";q=16`,
		`"waits-of-token";r=0`)
	d.send(t, http.MethodGet, "/api/events", token, "").want(t, http.StatusOK)
	for len(open) < waitsAtOnce-1 { // the last place is reserved
		if len(open)%waitsPerToken == 0 {
			_, token = d.tokenOf(t, account, 0)
		}
		if len(open)%waitsPerAccount == 0 {
			refused(d.send(t, http.MethodGet, "/api/events?wait=60", token, ""), `"waits-of-account";q=128`,
				`"waits-of-account";r=0`)
			account = d.account(t)
			_, token = d.tokenOf(t, account, 0)
		}
		open = append(open, d.open(t, d.web.URL, "", token).begun())
	}
	refused(d.send(t, http.MethodGet, "/api/events?wait=60", token, ""), `"waits";q=500`, `"waits";r=0`)
	token = d.token(t)
	open = append(open, d.open(t, d.web.URL, "", token).begun())
	token = d.token(t)
	refused(d.send(t, http.MethodGet, "/api/events?wait=60", token, ""), `"waits";q=500`, `"waits";r=0`)
	need(t, open[0].res.Body.Close())
	for deadline := time.Now().Add(30 * time.Second); d.send(t, http.MethodGet, "/api/events?wait=1", token,
		"").status != http.StatusOK; {
		if time.Now().After(deadline) {
			t.Fatal("a disconnected client keeps its slot")
		}
	}
}

// Waiting requests hold no connection of the database, which has eight.
func TestWait_HoldsNoDatabaseConnection(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token, account := d.owner(t)
		d.cardOf(t, account)
		for range waitsPerToken {
			d.open(t, d.web.URL, "", token).begun()
		}
		for range 20 {
			d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
		}
	})
}

func TestWait_TokenRevoked_Ends(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database, clock: &clock{}})
		account := d.account(t)
		id, revoked := d.tokenOf(t, account, 0)
		_, expiring := d.tokenOf(t, account, time.Hour)
		_, good := d.tokenOf(t, account, 0)
		kept := d.open(t, d.web.URL, "", good).begun()
		one, two := d.open(t, d.web.URL, "", revoked).begun(), d.open(t, d.web.URL, "", expiring).begun()
		three, four := d.ask(t, "/api/events?wait=60", revoked), d.ask(t, "/api/events?wait=60", expiring)
		need(t, d.accounts.RevokeToken(t.Context(), id))
		go func() { // advances the clock, also for a request that has just begun to wait
			for t.Context().Err() == nil {
				d.clock.advance(4 * time.Second)
				time.Sleep(time.Second)
			}
		}()
		equal(t, "stream of a token that was revoked", one.next(), []string{"error: EOF"})
		(<-three).want(t, http.StatusUnauthorized)
		d.clock.advance(time.Hour)
		equal(t, "stream of a token that expired", two.next(), []string{"error: EOF"})
		(<-four).want(t, http.StatusUnauthorized)
		owner, err := d.store.AccountByName(t.Context(), account)
		need(t, err)
		kept.wants(good, d.happen(t, owner.ID, card.EventDetected)[0])
	})
}

func TestWait_Shutdown_Ends(t *testing.T) {
	t.Parallel()
	waiting := 0
	d := deploy(t, setup{wrap: func(s *store.Store) hooked {
		return hooked{Store: s, lastSeqs: func(accounts []uuid.UUID) { waiting = len(accounts) }}
	}})
	l := listen(t, unbent)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l, d.handler, slog.Default(), time.Minute) }()
	s := d.open(t, "http://"+l.Addr().String(), "", d.token(t)).begun()
	conn := dial(t, l.Addr().String())
	head := "GET /api/events?wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + d.token(t) + "\r\n\r\n"
	_, err := io.WriteString(conn, head)
	need(t, err)
	for waiting < 2 {
		need(t, d.webhooks.Tick(t.Context()))
	}
	start := time.Now()
	cancel()
	_, err = s.block()
	if !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	equal(t, "body", readResponse(t, conn, head).want(t, http.StatusOK).body, "[]\n")
	need(t, <-ended)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the server ended after %s", took)
	}
}

// The deadlines of a connection, here shortened to a hundredth, do not abort a
// wait or a stream.
func TestWait_ExceedsDeadlineOfOtherRequests(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token, account := d.owner(t)
	l := listen(t, func(left time.Duration) time.Duration { return left / 100 })
	l.patience = 300 * time.Millisecond
	serveOn(t, l, d.handler)
	s := d.open(t, "http://"+l.Addr().String(), "", token).begun()
	time.Sleep(500 * time.Millisecond)
	s.wants(token, d.happen(t, account, card.EventDetected)[0])
}

// A stream that can't read the feed ends, so that its client reconnects. Before
// the first byte it responds with an error.
func TestEventStream_FeedUnreadable_Ends(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token, account := d.owner(t)
	s := d.open(t, d.web.URL, "", token).begun()
	d.happen(t, account, card.EventDetected)
	need(t, d.store.Close())
	_, err := s.block()
	if err == nil {
		t.Error("the stream continued")
	}
	if errors.Is(err, io.EOF) {
		return
	}
	d.send(t, http.MethodGet, "/api/events", token, "", "Accept", "text/event-stream").refused(t,
		http.StatusServiceUnavailable, "unavailable")
}
