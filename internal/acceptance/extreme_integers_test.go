package acceptance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// extremes returns the values for integer columns; nil is NULL.
func extremes() []any {
	return []any{int64(-10), int64(-1), int64(0), int64(1), int64(1 << 31), int64(1 << 62), int64(math.MaxInt64),
		int64(math.MinInt64), nil}
}

// integerColumns returns the integer columns of a table, as listed in the
// schema.
func integerColumns(t *testing.T, db *sql.DB, url, table string) []string {
	t.Helper()
	query := "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND data_type IN ('smallint', 'integer', 'bigint') ORDER BY ordinal_position"
	if strings.HasPrefix(url, "sqlite:") {
		query = "SELECT name FROM pragma_table_info($1) WHERE type = 'INTEGER' ORDER BY cid"
	}
	found := selectAll[string](t, db, query, table)
	if len(found) < 3 {
		t.Fatalf("%s has only these integer columns: %v", table, found)
	}
	return found
}

// selectAll returns the values of a query with one column.
func selectAll[T any](t *testing.T, db *sql.DB, query string, args ...any) (all []T) {
	t.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one T
		must(t, rows.Scan(&one))
		all = append(all, one)
	}
	must(t, rows.Err())
	return all
}

// damagedItem is a card with an extreme value in one column of one row.
type damagedItem struct {
	table, column string
	value         any
	stage         string // of the card when the row was changed
	card          *client.Card
	rejected      bool // by a constraint of the database
}

func (d *damagedItem) String() string {
	return fmt.Sprintf("%s.%s = %v (%s)", d.table, d.column, d.value, d.stage)
}

// damagedService is a running service with damaged rows in its database.
type damagedService struct {
	*testing.T
	url       string
	webhook   uuid.UUID
	db        *sql.DB
	program   *program
	server    *server
	client    *client.Client
	receiver  *recordingReceiver
	items     []*damagedItem
	healthy   []*client.Card
	suppliers map[string][]string // the flag for suppliers, by command
}

// recordingReceiver is a webhook receiver that records events. It rejects
// events of cards with damaged deliveries, so that these are rescheduled.
type recordingReceiver struct {
	sync.Mutex
	bodies  []string
	refused []string // card uuids
}

func (h *recordingReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.Lock()
	defer h.Unlock()
	if slices.ContainsFunc(h.refused, func(id string) bool { return strings.Contains(string(body), id) }) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.bodies = append(h.bodies, string(body))
}

// received reports whether an event of a card has arrived.
func (h *recordingReceiver) received(id uuid.UUID, kind client.EventType) bool {
	h.Lock()
	defer h.Unlock()
	return slices.ContainsFunc(h.bodies, func(body string) bool {
		return strings.Contains(body, id.String()) && strings.Contains(body, string(kind))
	})
}

// The process must survive every integer in every row. It must not issue a card
// that is not fully paid, and must keep selling, issuing, delivering and
// listing other cards. Operators' commands must keep working.
func TestService_ExtremeIntegersInRows_HarmNoOtherCard(t *testing.T) {
	for name, url := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + t.TempDir() + "/x.db" },
		"postgres": func(t *testing.T) string { return rig.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDamagedService(t, url(t))
			w.orderAll()
			w.payAll("paid", 1, 20)
			w.await("the payments are confirmed", func() error {
				return w.count("SELECT COUNT(*) FROM intents", len(w.paidCards())+len(w.healthy))
			})
			w.damageRows()
			w.payAll("half", 0.5, 20)
			w.payAll("young", 1, 1)
			w.resume()
			w.wantHealthy(w.healthy)
			w.wantNoUnpaidCard()
			w.wantHealthy([]*client.Card{w.sell(50), w.sell(60), w.sell(500)})
			w.wantAnswers()
			w.wantCommands()
			w.wantMetrics()
			w.server.stop(t)
		})
	}
}

const damagedSuppliers = "[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\nmin_usd = \"500\"\nmax_usd = \"500\"\nmin_validity = \"720h\"\n\n[[supplier]]\nname = \"prompt\"\nkind = \"sandbox\"\nmax_usd = \"50\"\n\n" +
	"[[supplier]]\nname = \"later\"\nkind = \"sandbox\"\nbehaviour = \"pending\"\nmin_usd = \"60\"\nmax_usd = \"60\"\n"

func newDamagedService(t *testing.T, url string) *damagedService {
	t.Helper()
	w := &damagedService{T: t, url: url, db: rig.OpenSQL(t, url), program: newProgram(t, url), receiver: &recordingReceiver{}}
	token := w.program.account(t)
	suppliers := writeFile(t, "suppliers.toml", damagedSuppliers)
	stock, _ := stockFile(t, "500", 1, 150)
	w.program.must(t, "stock", "import", stock, "--supplier", "shelf", "--suppliers", suppliers, "--yes")
	w.suppliers = map[string][]string{"stock": {"--suppliers", suppliers}}
	w.server = w.program.serve(t, "serve", "--simulated", "--rate", "monero=150", "--coins", "monero", "--address-pool",
		"1000", "--suppliers", suppliers,
		"--webhook-insecure", "--limit-create", "off", "--max-open-usd", "10000000", "--reconcile-every", "1s")
	w.client = newClient(t, w.server.url, token)
	receiver := httptest.NewServer(w.receiver)
	t.Cleanup(receiver.Close)
	made, err := w.client.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: receiver.URL})
	must(t, err)
	w.webhook = made.Webhook.ID
	// Issuing and sending wait until the rows are damaged.
	w.exec("UPDATE address_pools SET issue_after = $1", time.Now().Add(time.Hour).UnixMilli())
	w.exec("UPDATE webhooks SET paused_until = $1", time.Now().Add(time.Hour).UnixMilli())
	return w
}

func (w *damagedService) exec(statement string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(statement, args...); err != nil {
		w.Fatalf("%s: %v", statement, err)
	}
}

// await waits until f returns nil.
func (w *damagedService) await(what string, f func() error) {
	w.Helper()
	var err error
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); <-time.After(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	w.Fatalf("not true after 30 seconds: %s: %v", what, err)
}

func (w *damagedService) count(query string, want int) error {
	if got := selectAll[int](w.T, w.db, query)[0]; got != want {
		return fmt.Errorf("%d, want %d", got, want)
	}
	return nil
}

func (w *damagedService) sellUnpaid(usd int64) *client.Card {
	w.Helper()
	c, err := w.client.CreateCard(w.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(usd), Currency: "monero"})
	must(w, err)
	return c
}

// sell orders and pays a card.
func (w *damagedService) sell(usd int64) *client.Card {
	w.Helper()
	c := w.sellUnpaid(usd)
	_, err := w.client.SimulatePayment(w.Context(), c.UUID, client.SimulatePaymentRequest{})
	must(w, err)
	return c
}

// orderAll orders a card for each row to damage, and some healthy ones.
func (w *damagedService) orderAll() {
	w.Helper()
	for table, stages := range map[string][]string{"cards": {"paid", "half", "young"}, "intents": {"paid"},
		"deliveries": {"paid"}, "stock": {"paid", "half"}} {
		usd := map[string]int64{"stock": 500, "intents": 60}[table] // the supplier "later" keeps the intent open for another attempt
		usd = max(usd, 50)
		for _, column := range integerColumns(w.T, w.db, w.url, table) {
			for _, value := range extremes() {
				for _, stage := range stages {
					w.items = append(w.items,
						&damagedItem{table: table, column: column, value: value, stage: stage, card: w.sellUnpaid(usd)})
				}
			}
		}
	}
	for range 3 {
		w.healthy = append(w.healthy, w.sellUnpaid(50), w.sellUnpaid(500))
	}
}

func (w *damagedService) paidCards() []*client.Card {
	var all []*client.Card
	for _, d := range w.items {
		if d.stage == "paid" {
			all = append(all, d.card)
		}
	}
	return all
}

// payAll pays part of the price of all cards at a stage, with the given number
// of confirmations.
func (w *damagedService) payAll(stage string, part float64, confirmations int) {
	w.Helper()
	var cards []*client.Card
	for _, d := range w.items {
		if d.stage == stage {
			cards = append(cards, d.card)
		}
	}
	if stage == "paid" {
		cards = append(cards, w.healthy...)
	}
	tx, err := w.db.Begin()
	must(w, err)
	for _, c := range cards {
		amount := c.Payment.Amount.Mul(piconero).Mul(decimal.NewFromFloat(part)).IntPart()
		_, err := tx.Exec(
			"INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at) SELECT 'monero', $1, $2, $3, height + 1, $4 FROM simulated_chains",
			strings.Repeat("0", 28)+c.UUID.String(), c.Payment.Address, amount, time.Now().UnixMilli())
		must(w, err)
	}
	_, err = tx.Exec("UPDATE simulated_chains SET height = height + $1", confirmations)
	must(w, err)
	must(w, tx.Commit())
}

// damageRows sets one column of each item. The database rejects some values.
func (w *damagedService) damageRows() {
	w.Helper()
	where := map[string]string{"cards": "uuid = $2", "intents": "card_uuid = $2", "stock": "card_uuid = $2",
		"deliveries": "seq = (SELECT MIN(seq) FROM events WHERE card_uuid = $2)"}
	rejected := 0
	for _, d := range w.items {
		if d.table == "deliveries" {
			w.receiver.refused = append(w.receiver.refused, d.card.UUID.String())
		}
		result, err := w.db.Exec(fmt.Sprintf("UPDATE %s SET %s = $1 WHERE %s", d.table, d.column, where[d.table]), d.value,
			d.card.UUID)
		if d.rejected = err != nil; d.rejected {
			rejected++
			continue
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			w.Fatalf("%v: %d rows, %v", d, n, err)
		}
	}
	w.Logf("%d rows damaged, %d values rejected by the database", len(w.items)-rejected, rejected)
}

func (w *damagedService) resume() {
	w.Helper()
	w.exec("UPDATE webhooks SET paused_until = 0")
	w.exec("UPDATE address_pools SET issue_after = 0")
}

// wantHealthy waits until cards are issued and their webhooks delivered.
func (w *damagedService) wantHealthy(cards []*client.Card) {
	w.Helper()
	for _, c := range cards {
		ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
		_, err := w.client.WaitForCard(ctx, c.UUID)
		cancel()
		if err != nil {
			w.Fatalf("a healthy card: %v", err)
		}
		w.await("the webhook receives the card.generated event of a healthy card", func() error {
			if !w.receiver.received(c.UUID, client.EventTypeCardGenerated) {
				return errors.New("not received")
			}
			return nil
		})
	}
}

// wantNoUnpaidCard fails the test if a card was issued for too small or
// unconfirmed payments. It skips damaged values that are also valid settings,
// such as a low price.
func (w *damagedService) wantNoUnpaidCard() {
	w.Helper()
	for _, d := range w.items {
		if d.rejected && d.stage != "paid" {
			state := map[string]string{"half": "underpaid", "young": "confirming"}[d.stage]
			w.await("the payment is detected", func() error {
				if got := selectAll[string](w.T, w.db, "SELECT payment_state FROM cards WHERE uuid = $1",
					d.card.UUID)[0]; got != state {
					return fmt.Errorf("%v: payment is %s", d, got)
				}
				return nil
			})
		}
		n, _ := d.value.(int64)
		possible := d.rejected ||
			slices.Contains([]string{"amount", "accepted", "settled", "confirmations_required"}, d.column) &&
				(n == 1 || n == 1<<31)
		if d.stage == "paid" || d.table != "cards" || possible {
			continue
		}
		if selectAll[string](w.T, w.db, "SELECT status FROM cards WHERE uuid = $1", d.card.UUID)[0] != "awaiting_payment" {
			w.Errorf("%v: a card was issued, although the payment is too small or not confirmed", d)
		}
	}
}

// wantAnswers fails the test unless the API answers promptly for every card,
// and lists the healthy ones.
func (w *damagedService) wantAnswers() {
	w.Helper()
	for _, d := range w.items {
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		_, err := w.client.GetCard(ctx, d.card.UUID, client.WithRetry(1, time.Second))
		cancel()
		if problem, is := errors.AsType[*client.Error](err); err != nil &&
			(!is || problem.Status != http.StatusInternalServerError) {
			w.Errorf("%v: %v", d, err)
		}
	}
	for _, err := range w.client.ListDeliveries(w.Context(), w.webhook, client.ListDeliveriesOptions{}) {
		if err != nil {
			w.Fatal(err)
		}
	}
	listed := map[uuid.UUID]bool{}
	for c, err := range w.client.ListCards(w.Context(), client.ListCardsOptions{}) {
		if err != nil {
			w.Fatal(err)
		}
		listed[c.UUID] = true
	}
	for _, c := range w.healthy {
		if !listed[c.UUID] {
			w.Errorf("the healthy card %s is not listed", c.UUID)
		}
	}
}

// wantCommands fails the test unless the operators' commands work.
func (w *damagedService) wantCommands() {
	w.Helper()
	stdout, stderr, code := w.program.run("reconcile")
	if code != 1 || strings.Contains(stderr, "goroutine ") {
		w.Errorf("reconcile: exit code %d\n%s%s", code, stdout, stderr)
	}
	list, stderr, code := w.program.run("card", "list", "--limit", "1000")
	if code != 0 || strings.Contains(stderr, "goroutine ") {
		w.Errorf("card list: exit code %d\n%s", code, stderr)
	}
	for _, c := range w.healthy {
		if !strings.Contains(list, c.UUID.String()) {
			w.Errorf("card list lacks the healthy card %s", c.UUID)
		}
	}
	for _, args := range [][]string{{"card", "list", "--attention"}, {"stock", "list"}, {"stock", "list", "--json"}} {
		if _, stderr, code := w.program.run(append(args, w.suppliers[args[0]]...)...); code != 0 ||
			strings.Contains(stderr, "goroutine ") {
			w.Errorf("%v: exit code %d\n%s", args, code, stderr)
		}
	}
	for _, d := range w.items { // card list has already read every column of cards
		if n, _ := d.value.(int64); n != math.MinInt64 || d.rejected || d.table == "cards" && d.column != "refunded" {
			continue
		}
		if _, stderr, code := w.program.run("card", "show", d.card.UUID.String()); code > 1 ||
			strings.Contains(stderr, "goroutine ") {
			w.Errorf("%v: card show: exit code %d\n%s", d, code, stderr)
		}
	}
}

// wantMetrics fails the test unless the metrics include the state of the
// service.
func (w *damagedService) wantMetrics() {
	w.Helper()
	response, err := http.Get(metricsLine.FindStringSubmatch(w.server.Output())[1])
	must(w, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must(w, err)
	wantOutput(w.T, string(text), "cardmint_open_cards ", "cardmint_scrape_errors_total 0", "cardmint_intents{",
		"cardmint_reconcile_doubts ", "cardmint_panics_total 0")
}
