package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

const (
	listsPerToken   = 4
	listsPerAccount = 8
	listsAtOnce     = 32
)

// insertCards inserts n cards into the account of a token, more than the
// buffers of a connection hold.
func (d *deployment) insertCards(t testing.TB, token string, n int) {
	t.Helper()
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	template := strings.TrimPrefix(made.header.Get("Location"), "/api/cards/")
	_, err := rig.OpenSQL(t, d.database).Exec(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at,
		rate_source, expires_at, confirmations_required)
		WITH RECURSIVE n (i) AS (SELECT (SELECT COUNT(*) FROM cards) UNION ALL SELECT i + 1 FROM n LIMIT $1)
		SELECT printf('019aa1c9-f868-7cef-8e4e-%012x', i), account_id, created_at, usd_cents, currency, amount,
		printf('%095d', i), rate, rate_at, rate_source, expires_at, confirmations_required FROM n, cards WHERE uuid = $2`, n, template)
	need(t, err)
}

// reader is a client that requests a list, and reads only the header of the
// response.
type reader struct {
	conn   net.Conn
	answer *http.Response
}

func (d *deployment) slowly(t testing.TB, address, token, query string) reader {
	t.Helper()
	conn := dial(t, address)
	need(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err := fmt.Fprintf(conn, "GET /api/cards%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", query, token)
	need(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	need(t, err)
	return reader{conn, answer}
}

// refused fails the test unless a list was refused by the concurrency limit.
func (r reader) refused(t testing.TB, policy, left string) {
	t.Helper()
	body, err := io.ReadAll(r.answer.Body)
	need(t, err)
	a := answer{r.answer.StatusCode, r.answer.Header, string(body), false}
	a.refused(t, http.StatusTooManyRequests, "quota_exceeded")
	equal(t, "headers",
		[]string{a.header.Get("Retry-After"), firstOf(a.header.Get("RateLimit-Policy")), firstOf(a.header.Get("RateLimit"))},
		[]string{"5", policy, left})
}

// eventually requests a list until a slot is free.
func (d *deployment) eventually(t testing.TB, address, token string) reader {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		r := d.slowly(t, address, token, "")
		if r.answer.StatusCode == http.StatusOK {
			return r
		}
		need(t, r.conn.Close())
		if time.Now().After(deadline) {
			t.Fatal("no slot became free for another list")
		}
	}
}

// A stalled reader keeps a page in memory. The number of lists is limited by
// token, account and process, and the last slot is reserved for an account that
// has none.
func TestListCards_SlowReaders_AreLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: reads a long list slowly, for fifty readers")
	}
	d := deploy(t, setup{}) // not parallel: measures memory
	l := listen(t, unbent)
	l.sendBuffer = 16 << 10
	serveOn(t, l, d.handler)
	address := l.Addr().String()
	before := heap()
	var reading []reader
	read := func(token string) {
		t.Helper()
		r := d.slowly(t, address, token, "")
		equal(t, "status", r.answer.StatusCode, http.StatusOK)
		reading = append(reading, r)
	}
	var token string
	for len(reading) < listsAtOnce-1 {
		owner, tokens := d.account(t), [3]string{}
		for i := range tokens {
			_, tokens[i] = d.tokenOf(t, owner, 0)
		}
		token = tokens[0]
		d.insertCards(t, token, 5_000)
		for range min(listsPerToken, listsAtOnce-1-len(reading)) {
			read(tokens[0])
		}
		d.slowly(t, address, tokens[0], "").refused(t, `"lists-of-token";q=4`, `"lists-of-token";r=0`)
		d.slowly(t, address, tokens[0], "?status=generated").refused(t, `"lists-of-token";q=4`, `"lists-of-token";r=0`)
		for range min(listsPerAccount-listsPerToken, listsAtOnce-1-len(reading)) {
			read(tokens[1])
		}
		if len(reading) < listsAtOnce-1 {
			d.slowly(t, address, tokens[2], "").refused(t, `"lists-of-account";q=8`, `"lists-of-account";r=0`)
		} else {
			d.slowly(t, address, tokens[2], "").refused(t, `"lists";q=32`, `"lists";r=0`) // the last slot is reserved
		}
	}
	late, later := d.token(t), d.token(t)
	d.insertCards(t, late, 5_000)
	read(late)
	d.slowly(t, address, later, "").refused(t, `"lists";q=32`, `"lists";r=0`)
	if grown := heap() - before; grown > 24<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	started := time.Now()
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	d.send(t, http.MethodGet, "/api/cards?limit=1000", token, "").want(t, http.StatusOK) // pages are not limited
	if took := time.Since(started); took > 8*time.Second {
		t.Errorf("creating a card and reading a page took %s", took)
	}
	for _, r := range reading {
		need(t, r.conn.Close())
	}
	for range listsPerToken {
		d.eventually(t, address, token)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The response of a stalled reader is aborted, and its slot is freed.
func TestListCards_StalledReader_IsAborted(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: stalls a long list for seconds")
	}
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	d.insertCards(t, token, 2_000)
	l := listen(t, unbent)
	l.patience, l.sendBuffer = 2*time.Second, 16<<10
	serveOn(t, l, d.handler)
	var stalled []reader
	for range listsPerToken {
		r := d.slowly(t, l.Addr().String(), token, "")
		equal(t, "status", r.answer.StatusCode, http.StatusOK)
		stalled = append(stalled, r)
	}
	d.slowly(t, l.Addr().String(), token, "").refused(t, `"lists-of-token";q=4`, `"lists-of-token";r=0`)
	d.eventually(t, l.Addr().String(), token)
	if _, err := io.Copy(io.Discard, stalled[0].answer.Body); err == nil {
		t.Error("an aborted list ends like a complete one")
	}
}
