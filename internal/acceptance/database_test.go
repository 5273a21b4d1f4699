package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/rig"
)

// sendRequest sends a request and returns the status and the body. It fails the
// test if no response arrives within 20 seconds.
func sendRequest(t *testing.T, method, url, token, key string) (int, string) {
	t.Helper()
	body := ""
	if method == http.MethodPost {
		body = `{"usd_amount": "150", "currency": "monero"}`
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(r)
	if err != nil {
		t.Errorf("no response: %v", err)
		return 0, ""
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("incomplete response: %v", err)
	}
	if res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %s", text)
	}
	return res.StatusCode, string(text)
}

// awaitStatus waits until a URL returns the status.
func awaitStatus(t *testing.T, url string, status int, limit time.Duration) string {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		got, body := sendRequest(t, http.MethodGet, url, "", "")
		if got == status {
			return body
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d %s, want %d", url, got, body, status)
		}
	}
}

// awaitReplay waits until a standby has replayed everything that its primary
// has written.
func awaitReplay(tb testing.TB, primary *rig.Cluster) {
	tb.Helper()
	written := primary.Value(tb, "SELECT pg_current_wal_lsn()")
	await(tb, time.Minute, "the standby to replay all writes", func() bool {
		return primary.Value(tb, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= $1::PG_LSN", written) != "0"
	})
}

func serveSimulated(more ...string) []string {
	return append([]string{"serve", "--simulated", "--rate", "monero=150", "--address-pool", "100"}, more...)
}

func TestServe_DatabaseDown_WaitsForIt(t *testing.T) {
	t.Parallel()
	c := rig.NewCluster(t)
	p := newProgram(t, c.URL("postgres"))
	token := p.account(t)
	c.Stop()
	cmd := exec.Command(p.path, serveSimulated("--role", "all", "--database-wait", "50s")...)
	cmd.Env = p.env
	s := &server{Process: rig.Start(t, cmd)}
	s.Ready(t, 10*time.Second, func() error {
		found := urlLine.FindStringSubmatch(s.Output())
		if found == nil {
			return fmt.Errorf("no address printed yet")
		}
		s.url = found[1]
		return nil
	})
	if !strings.Contains(s.Output(), "waiting for the database") {
		t.Errorf("the log does not mention the wait: %s", s.Output())
	}
	awaitStatus(t, s.url+"/livez", http.StatusOK, 0)
	if body := awaitStatus(t, s.url+"/readyz", http.StatusServiceUnavailable, 0); !strings.Contains(body,
		`"reasons":{"database":"does not answer"}`) {
		t.Error(body)
	}
	if status, body := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, ""); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, body)
	}
	c.Start(t)
	awaitStatus(t, s.url+"/readyz", http.StatusOK, 10*time.Second)
	if status, body := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, ""); status != http.StatusCreated {
		t.Errorf("%d %s", status, body)
	}
	name := c.Value(t, "SELECT DISTINCT application_name FROM pg_stat_activity WHERE application_name LIKE 'cardmint%'")
	if !regexp.MustCompile(`^cardmint all \S+$`).MatchString(name) {
		t.Errorf("application_name is %q", name)
	}
	s.stop(t)
}

func TestServe_TerminatedWhileWaiting_Exits(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "postgres://127.0.0.1:1/x?sslmode=disable")
	p.must(t, "keys", "create")
	cmd := exec.Command(p.path, serveSimulated()...)
	cmd.Env = p.env
	s := &server{Process: rig.Start(t, cmd)}
	s.awaitOutput(t, 10*time.Second, "waiting for the database")
	s.stop(t)
	if strings.Contains(s.Output(), "cardmint: ") {
		t.Error(s.Output())
	}
}

// While the database is frozen, every request is answered in time. After the
// thaw, the service recovers and has leaked nothing.
func TestServe_DatabaseFrozen_AnswersInTime(t *testing.T) {
	t.Parallel()
	c := rig.NewCluster(t)
	p := newProgram(t, c.URL("postgres"))
	token := p.account(t)
	s := p.serve(t, serveSimulated()...)
	_, made := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, "key")
	var card struct{ UUID uuid.UUID }
	if err := json.Unmarshal([]byte(made), &card); err != nil {
		t.Fatal(err)
	}
	c.Freeze()
	var all sync.WaitGroup
	for i := range 8 {
		for _, x := range []struct{ method, path, key string }{
			{http.MethodPost, "/api/cards", ""}, {http.MethodPost, "/api/cards", "key"},
			{http.MethodPost, "/api/cards", fmt.Sprint(i)},
			{http.MethodGet, "/api/cards", ""}, {http.MethodGet, "/api/cards?limit=5", ""},
			{http.MethodGet, "/api/cards/" + card.UUID.String(), ""},
			{http.MethodGet, "/api/events", ""}, {http.MethodGet, "/readyz", ""},
		} {
			all.Go(func() {
				status, body := sendRequest(t, x.method, s.url+x.path, token, x.key)
				// At most four full lists run at once.
				tooMany := status == http.StatusTooManyRequests && x.method == http.MethodGet && x.path == "/api/cards"
				if status != http.StatusServiceUnavailable && !tooMany {
					t.Errorf("%s %s: %d %s", x.method, x.path, status, body)
				}
			})
		}
	}
	all.Wait()
	c.Thaw()
	thawed := time.Now()
	awaitStatus(t, s.url+"/readyz", http.StatusOK, 6*time.Second)
	for { // the process may become ready before it has an address
		status, body := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, "")
		if status == http.StatusCreated {
			break
		}
		if status != http.StatusServiceUnavailable || time.Since(thawed) > 10*time.Second {
			t.Fatalf("%s after the thaw: %d %s", time.Since(thawed), status, body)
		}
	}
	for range 20 {
		if status, body := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, ""); status != http.StatusCreated {
			t.Errorf("%d %s", status, body)
		}
	}
	s.stop(t)
}

// On SIGTERM, a process finishes accepted requests and releases its leases, but
// not beyond the stop timeout of its supervisor.
func TestServe_DatabaseFrozen_StopsInTime(t *testing.T) {
	t.Parallel()
	c := rig.NewCluster(t)
	p := newProgram(t, c.URL("postgres"))
	token := p.account(t)
	s := p.serve(t, serveSimulated()...)
	awaitStatus(t, s.url+"/readyz", http.StatusOK, 10*time.Second)
	c.Freeze()
	const requests = 8
	var all sync.WaitGroup
	defer all.Wait()
	for range requests {
		all.Go(func() {
			if status, body := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, ""); status != http.StatusServiceUnavailable {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	s.awaitMetric(t, "cardmint_requests_in_flight", strconv.Itoa(requests))
	signaled := time.Now()
	s.stop(t)
	t.Logf("the process exited after %.1f s", time.Since(signaled).Seconds())
}

// TestServe_Failover_KeepsAcknowledgedCards stops the standby until requests
// time out, while clients keep retrying, and then promotes it.
func TestServe_Failover_KeepsAcknowledgedCards(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	standby := primary.Standby(t, "second")
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	p := newProgram(t, primary.URL("postgres"))
	token := p.account(t)
	s := p.serve(t, serveSimulated()...)
	var mu sync.Mutex
	acknowledged := map[uuid.UUID]bool{}
	var answers [6]int // by client
	order := func(key string) (again bool) {
		status, body := sendRequest(t, http.MethodPost, s.url+"/api/cards", token, key)
		var card struct{ UUID uuid.UUID }
		switch err := json.Unmarshal([]byte(body), &card); {
		case status == http.StatusCreated && err == nil:
			mu.Lock()
			acknowledged[card.UUID] = true
			mu.Unlock()
		case status != http.StatusServiceUnavailable && status != 0:
			t.Errorf("%d %s", status, body)
			return false
		}
		return true
	}
	for i := range 10 {
		order(fmt.Sprintf("before-%d", i))
	}
	standby.Stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range answers {
		clients.Go(func() {
			for ctx.Err() == nil && order(fmt.Sprintf("during-%d", i)) { // repeats the same key
				mu.Lock()
				answers[i]++
				mu.Unlock()
			}
		})
	}
	snapshot := func() [6]int {
		mu.Lock()
		defer mu.Unlock()
		return answers
	}
	// allGot reports whether every client has got n more responses than before.
	allGot := func(n int, before [6]int) bool {
		for i, now := range snapshot() {
			if now < before[i]+n {
				return false
			}
		}
		return true
	}
	const waitsForStandby = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	isWaiting := func() bool { return primary.Value(t, "SELECT count(*) "+waitsForStandby) != "0" }
	await(t, time.Minute, "a commit that waits for the standby", isWaiting)
	if status, body := sendRequest(t, http.MethodGet, s.url+"/api/cards?limit=1", token, ""); status != http.StatusOK {
		t.Errorf("read while the standby is down: %d %s", status, body)
	}
	await(t, time.Minute, "every client's first request to time out, and a retry that waits for the standby",
		func() bool { return allGot(1, [6]int{}) && isWaiting() })
	// An operator cancels the waits for replication: the rows become visible,
	// but must not be acknowledged.
	canceledAfter := snapshot()
	primary.Exec(t, "SELECT pg_cancel_backend(pid) "+waitsForStandby)
	await(t, time.Minute, "every client to retry after the cancellation",
		func() bool { return allGot(2, canceledAfter) }) // the first response may be to an earlier request
	cancel()
	clients.Wait()
	unclear := primary.Value(t, "SELECT count(*) FROM cards")
	primary.Stop()
	standby.Start(t)
	standby.Promote(t)
	lost := 0
	for id := range acknowledged {
		if standby.Value(t, "SELECT count(*) FROM cards WHERE uuid = $1", id) != "1" {
			lost++
		}
	}
	t.Logf("%d cards acknowledged, %s on the primary, %d lost", len(acknowledged), unclear, lost)
	if lost > 0 || len(acknowledged) != 10 {
		t.Errorf("%d of %d acknowledged cards are lost, want 0 of 10", lost, len(acknowledged))
	}
}

// Waiting does not help against a pooler in an unsupported mode, so startup
// fails immediately.
func TestServe_PgBouncerTransactionMode_IsRefused(t *testing.T) {
	t.Parallel()
	direct := rig.Postgres(t)
	p := newProgram(t,
		rig.PgBouncer(t, direct, "pool_mode = transaction",
			"ignore_startup_parameters = extra_float_digits, client_min_messages, "+
				"statement_timeout, idle_in_transaction_session_timeout, tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count, tcp_user_timeout"))
	p.must(t, "keys", "create")
	_, stderr, code := p.run(serveSimulated()...)
	if code != 1 || !strings.Contains(stderr, "pool_mode = session") ||
		!strings.Contains(stderr, "hint: change pgbouncer.ini") || strings.Contains(stderr, "password") {
		t.Errorf("exit code %d, printed %s", code, stderr)
	}
	_, stderr, code = p.run(append(serveSimulated(), "--database-url", rig.PgBouncer(t, direct, "pool_mode = session"))...)
	if code != 1 || !strings.Contains(stderr, "ignore_startup_parameters: client_min_messages") ||
		!strings.Contains(stderr, "hint: change pgbouncer.ini") {
		t.Errorf("exit code %d, printed %s", code, stderr)
	}
}

func TestServe_ApplicationNameInURL_NamesSessions(t *testing.T) {
	t.Parallel()
	c := rig.NewCluster(t)
	p := newProgram(t, c.URL("postgres")+"&application_name=shop")
	p.account(t)
	s := p.serve(t, serveSimulated("--role", "worker")...)
	if n := c.Value(t, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shop'"); n == "0" {
		t.Error("no session has the application_name shop")
	}
	s.stop(t)
}
