//go:build drill

package acceptance_test

import (
	"bufio"
	"cmp"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

var overloadFor = flag.Duration("overload", time.Minute,
	"how long TestFigures_Overload creates 200 cards a second; its other measurements take a sixth of that each")

const (
	baseRate  = 200 // cards created a second
	poolAhead = 100_000

	maxConnections = 1024 // a typical limit of a proxy
	detections     = 40
	paymentGap     = 250 * time.Millisecond
)

// TestFigures_Overload measures the real program on PostgreSQL, on one machine
// with the database and the clients, and prints the table of
// docs/design/measurements.md. The column Failed counts all responses except
// cards that were created, and orders that were refused before they were
// started.
func TestFigures_Overload(t *testing.T) {
	m := startLoadTest(t, "all")
	short := *overloadFor / 6
	fmt.Printf("\n| Cards ordered | Created a second | Refused a second | Failed | Median | 99 of 100 within |\n|---|---|---|---|---|---|\n")
	m.measureOrders(fmt.Sprintf("%d a second for %s", baseRate, *overloadFor), baseRate, *overloadFor)
	capacity := m.capacity(short)
	fmt.Printf("| by 64 clients, each as soon as the last is created: the capacity | %.0f | | | | |\n", capacity)
	for _, times := range []float64{1, 2, 4} {
		m.measureOrders(fmt.Sprintf("%.0f times the capacity", times), times*capacity, short)
	}
	fmt.Printf("\n| Beside cards ordered | From the payment in a block to the card: median | 9 of 10 within | longest |\n|---|---|---|---|\n")
	m.measureDetection("none", 0)
	m.measureDetection(fmt.Sprint(baseRate, " a second"), baseRate)
	m.measureDetection(fmt.Sprint(10*baseRate, " a second"), 10*baseRate)
	m.measureDetection("4 times the capacity", 4*capacity)
	m.s.stop(t)
	m = startLoadTest(t, "worker", "api")
	m.measureDetection("4 times the capacity, with the worker in a separate process", 4*capacity)
	m.s.stop(t)
}

// loadTest is the running program with its clients.
type loadTest struct {
	t     *testing.T
	s     *server
	db    *sql.DB
	token string
	order []byte // the request of a client
	conns []*clientConn

	metrics string // address
}

// startLoadTest starts a process for each role. The first one exports the
// metrics of the address pool, the last one serves the API.
func startLoadTest(t *testing.T, roles ...string) *loadTest {
	t.Helper()
	url := rig.Postgres(t)
	p := newProgram(t, url)
	m := &loadTest{t: t, token: p.account(t), db: rig.OpenSQL(t, url),
		metrics: fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t))}
	metrics := m.metrics
	for _, role := range roles {
		m.s = p.serve(t, "serve", "--role", role, "--simulated", "--rate", "monero=152.52", "--coins", "monero",
			"--address-pool", strconv.Itoa(poolAhead), "--reconcile-every", "0",
			"--limit-token", "off", "--limit-account", "off", "--limit-create", "off", "--metrics-listen", metrics)
		metrics = "127.0.0.1:0"
	}
	const body = `{"usd_amount": "150.50", "currency": "monero"}`
	m.order = fmt.Appendf(nil,
		"POST /api/cards HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", m.token, len(body), body)
	for range maxConnections {
		m.conns = append(m.conns, &clientConn{m: m})
	}
	return m
}

// awaitAddresses closes all connections, because the service would close them
// after two idle minutes. Then it waits until the address pool is full.
func (m *loadTest) awaitAddresses() {
	m.t.Helper()
	for _, l := range m.conns {
		if l.conn != nil {
			_ = l.conn.Close()
			l.conn = nil
		}
	}
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		res, err := http.Get("http://" + m.metrics + "/metrics") // not scrape, which searches the long log for the address
		if err != nil {
			m.t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if _ = res.Body.Close(); err != nil {
			m.t.Fatal(err)
		}
		free, _ := strconv.ParseFloat(metricValue(string(text), `cardmint_addresses_free{coin="monero"}`), 64)
		if free >= poolAhead-1000 {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("only %.0f addresses are free", free)
		}
	}
}

// clientConn is a connection of a client. It uses little CPU, because clients
// and service share the machine.
type clientConn struct {
	m    *loadTest
	conn net.Conn
	in   *bufio.Reader
}

// notStarted is the result of create for an order that was refused before it
// was started.
const notStarted = -1

// create orders a card and returns the status of the response, or notStarted.
// It fails the test if there is no response.
func (l *clientConn) create() (status int) {
	status, err := l.roundTrip()
	if err != nil {
		l.m.t.Error(err)
		l.conn = nil
	}
	return status
}

func (l *clientConn) roundTrip() (status int, err error) {
	if l.conn == nil {
		if l.conn, err = net.Dial("tcp", strings.TrimPrefix(l.m.s.url, "http://")); err != nil {
			return 0, err
		}
		l.in = bufio.NewReader(l.conn)
	}
	if _, err := l.conn.Write(l.m.order); err != nil {
		return 0, err
	}
	status, length, closes := 0, 0, false
	for {
		head, err := l.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		switch text := strings.TrimSpace(string(head)); {
		case status == 0:
			_, _ = fmt.Sscanf(text, "HTTP/1.1 %d", &status)
			continue
		case text != "":
			if rest, found := strings.CutPrefix(text, "Content-Length: "); found {
				length, _ = strconv.Atoi(rest)
			}
			closes = closes || text == "Connection: close"
			continue
		}
		break
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(l.in, body); err != nil {
		return 0, err
	}
	if closes {
		_ = l.conn.Close()
		l.conn = nil
	}
	if status == http.StatusServiceUnavailable && strings.Contains(string(body), "has not begun") {
		return notStarted, nil
	}
	if status != http.StatusCreated {
		l.m.t.Logf("%s", body)
	}
	return status, nil
}

// capacity returns the number of cards created per second for 64 clients. Each
// client orders its next card after the previous response.
func (m *loadTest) capacity(d time.Duration) float64 {
	m.awaitAddresses()
	var created atomic.Int64
	var clients sync.WaitGroup
	start := time.Now()
	for _, l := range m.conns[:64] {
		clients.Go(func() {
			for time.Since(start) < d {
				if l.create() == http.StatusCreated {
					created.Add(1)
				}
			}
		})
	}
	clients.Wait()
	return float64(created.Load()) / time.Since(start).Seconds()
}

// loadResult counts the responses to a series of orders.
type loadResult struct {
	created []time.Duration // response times
	refused int
	failed  int
	took    time.Duration // duration of the series
}

// sendOrders orders perSecond cards per second until stop is closed. It does
// not wait for responses, unless all connections are busy.
func (m *loadTest) sendOrders(perSecond float64, stop <-chan struct{}) (o loadResult) {
	due := make(chan struct{}, len(m.conns))
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, l := range m.conns {
		all.Go(func() {
			for range due {
				sent := time.Now()
				status := l.create()
				took := time.Since(sent)
				mu.Lock()
				switch status {
				case http.StatusCreated:
					o.created = append(o.created, took)
				case notStarted:
					o.refused++
				default:
					o.failed++
				}
				mu.Unlock()
			}
		})
	}
	start := time.Now()
	for n := 0; ; {
		select {
		case <-stop:
			o.took = time.Since(start)
			close(due)
			all.Wait()
			return o
		default:
		}
		for until := int(time.Since(start).Seconds() * perSecond); n < until; n++ {
			due <- struct{}{}
		}
		time.Sleep(time.Millisecond)
	}
}

// measureOrders orders perSecond cards per second for d, and prints a row of
// the table.
func (m *loadTest) measureOrders(name string, perSecond float64, d time.Duration) {
	m.awaitAddresses()
	stop := make(chan struct{})
	time.AfterFunc(d, func() { close(stop) })
	o := m.sendOrders(perSecond, stop)
	fmt.Printf("| %s | %.0f | %.0f | %d | %s | %s |\n", name, float64(len(o.created))/o.took.Seconds(),
		float64(o.refused)/o.took.Seconds(), o.failed,
		percentile(o.created, 0.5), percentile(o.created, 0.99))
}

// percentile returns a quantile of durations, in milliseconds.
func percentile(all []time.Duration, of float64) string {
	if len(all) == 0 {
		return "none"
	}
	slices.SortFunc(all, cmp.Compare)
	return fmt.Sprintf("%.1f ms", float64(all[int(float64(len(all)-1)*of)].Microseconds())/1000)
}

// measureDetection pays for cards while perSecond cards are ordered per second,
// and prints how long it took until they were issued.
func (m *loadTest) measureDetection(name string, perSecond float64) {
	m.awaitAddresses()
	shop := newClient(m.t, m.s.url, m.token)
	var cards []uuid.UUID
	for range detections {
		c, err := shop.CreateCard(m.t.Context(),
			client.CreateCardRequest{USDAmount: decimal.NewFromInt(100), Currency: "monero"})
		if err != nil {
			m.t.Fatal(err)
		}
		cards = append(cards, c.UUID)
	}
	stop := make(chan struct{})
	var orders sync.WaitGroup
	if perSecond > 0 {
		orders.Go(func() { m.sendOrders(perSecond, stop) })
	}
	took := make([]time.Duration, detections)
	var all sync.WaitGroup
	for i, id := range cards {
		all.Go(func() { took[i] = m.payAndWait(id) })
		time.Sleep(paymentGap)
	}
	all.Wait()
	close(stop)
	orders.Wait()
	fmt.Printf("| %s | %s | %s | %s |\n", name, percentile(took, 0.5), percentile(took, 0.9), percentile(took, 1))
}

// payAndWait adds a confirmed payment to the chain, and returns the time until
// its card was issued.
func (m *loadTest) payAndWait(id uuid.UUID) time.Duration {
	paid := time.Now()
	_, err := m.db.Exec(`WITH mined AS (UPDATE simulated_chains SET height = height + 20 WHERE currency = 'monero' RETURNING height)
		INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at) SELECT 'monero', $1, address, amount, mined.height - 15, $2 FROM cards, mined WHERE uuid = $3`,
		strings.ReplaceAll(id.String(), "-", "")+strings.ReplaceAll(uuid.NewString(), "-", ""), paid.UnixMilli(), id)
	if err != nil {
		m.t.Error(err)
		return 0
	}
	for ; ; time.Sleep(5 * time.Millisecond) {
		var status string
		if err := m.db.QueryRow("SELECT status FROM cards WHERE uuid = $1", id).Scan(&status); err != nil ||
			time.Since(paid) > time.Minute {
			m.t.Errorf("the card is %q after %s: %v", status, time.Since(paid), err)
			return time.Since(paid)
		}
		if status == "generated" {
			return time.Since(paid)
		}
	}
}
