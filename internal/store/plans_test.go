package store_test

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"
	modernc "modernc.org/sqlite"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/store/postgres"
)

var plansOf = flag.Int("plans", 0, "explain the store's statements with so many cards, and print what they cost")

// Limits of one statement's reads, for any number of cards. The tests request
// pages of ten.
const (
	mostRows      = 300 // read by PostgreSQL from tables and indexes, including discarded ones
	mostPages     = 500 // read by PostgreSQL, including cached ones
	mostLitePages = 300 // read by SQLite
)

// Methods that may read more, with the reason.
var mayRead = map[string]string{
	"ReadBooks first":                       "keeps nothing yet, and reads everything in pieces",
	"ReadBooks full":                        "reads everything in pieces, to compare it",
	"KeepBooks first":                       "forgets the notes of filling the database",
	"StockCounts":                           "counts the whole stock",
	"ReleaseStock":                          "looks through the stock of a supplier, when an operator says so",
	"DoubtfulStock":                         "looks through the stock, when an operator asks",
	"HoldStock":                             "holds the stock of a supplier, when an operator says so",
	"PromisedUSD":                           "adds up all that is open or waits, by indexes that have nothing else",
	"Stats":                                 "adds up all that is open or waits, by indexes that have nothing else",
	"CountSealed":                           "counts everything that is encrypted, for an operator",
	"Confirmations of a coin without cards": "looks at the newest 10,000 cards",
}

// measured is a statement with its highest cost.
type measured struct {
	method, query, plan string
	rows, pages         int
	skipped             int // rows discarded by index-only scans
	took                time.Duration
}

// listsCards are the prefixes of methods that list cards with several filters.
// They may scan the index of one filter, with indexEntries entries per page,
// and discard the entries that the other filters don't match.
var listsCards = []string{"Filtered ", "Cards ", "PageTags "}

const indexEntries = 40

// limits returns the limits of a statement.
func (m *meter) limits(s measured) (rows, pages int) {
	rows, pages = mostRows, mostPages
	if m.lite && *plansOf == 0 { // with millions of cards, B-trees have more levels
		pages = mostLitePages
	}
	if slices.ContainsFunc(listsCards, func(prefix string) bool { return strings.HasPrefix(s.method, prefix) }) {
		rows += s.skipped
		if *plansOf > 0 {
			pages += m.n / indexEntries
		}
	}
	return rows, pages
}

// meter measures every statement that a store runs.
type meter struct {
	lite bool
	n    int // cards

	mu     sync.Mutex
	method string // the current method; "" if it does not count
	called []string
	all    map[string]measured // by method and statement

	statements map[string]map[string]bool // by method; if not nil, statements are only recorded
}

func (m *meter) begin(method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.method = method
	m.called = append(m.called, method)
}

func (m *meter) note(s measured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.method = m.method
	if s.method == "" {
		return
	}
	key := s.method + ": " + s.query
	if old, found := m.all[key]; !found || old.pages < s.pages {
		m.all[key] = s
	}
}

// dear returns the statements that exceed the limits.
func (m *meter) dear() (dear []measured) {
	for _, s := range m.all {
		mostRows, mostPages := m.limits(s)
		// With millions of rows, key rotation uses larger pages.
		if *plansOf > 0 && strings.HasPrefix(s.method, "SealedBy ") {
			continue
		}
		if (s.rows > mostRows || s.pages > mostPages) && mayRead[s.method] == "" {
			dear = append(dear, s)
		}
	}
	slices.SortFunc(dear, func(a, b measured) int { return strings.Compare(a.method+a.query, b.method+b.query) })
	return dear
}

func (s measured) String() string {
	return fmt.Sprintf("%-34s %7d rows %7d pages %9.2f ms  %.100s\n      %s", s.method, s.rows, s.pages,
		float64(s.took.Microseconds())/1000, s.query,
		strings.ReplaceAll(s.plan, "\n", "\n      "))
}

// measure runs f on a store of the database at url, which has n cards.
func measure(t *testing.T, url string, n int, f func(*calls)) *meter {
	t.Helper()
	m := &meter{lite: strings.HasPrefix(url, "sqlite:"), n: n, all: map[string]measured{}}
	measureWith(t, m, url, n, f)
	return m
}

func measureWith(t *testing.T, m *meter, url string, n int, f func(*calls)) {
	t.Helper()
	s, err := store.OpenThrough(t.Context(), url, 8, chain.Currencies(), func(c driver.Connector) driver.Connector {
		return metered{c, m}
	})
	check(t, err)
	defer func() { _ = s.Close() }()
	f(&calls{t: t, s: s, n: n, begin: m.begin, own: newAccount(t, s)})
}

// The cost of a statement does not depend on the number of cards.
func TestPlans_NoStatementReadsAWholeTable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: fills databases")
	}
	if *plansAt != "" {
		if atURL(t, *plansAt) {
			fillPlans(t, *plansAt, *plansOf)
		}
		printSizes(t, *plansAt, *plansOf)
		m := measure(t, *plansAt, *plansOf, func(c *calls) {
			c.withoutBooks = true // the first reading is a full scan
			c.all()
		})
		for _, key := range slices.Sorted(maps.Keys(m.all)) {
			fmt.Println(m.all[key])
		}
		return
	}
	databases.Each(t, func(t *testing.T, url string) {
		n := 25_000
		if strings.HasPrefix(url, "sqlite:") {
			n = 20_000 // filling it takes longer
			if underRace {
				n = 1000 // too few to find anything; make test also runs this without the race detector
			}
		}
		if *plansOf > 0 {
			n = *plansOf
		}
		start := time.Now()
		fillPlans(t, url, n)
		filled := time.Now()
		m := measure(t, url, n, (*calls).all)
		t.Logf("%d cards: filled within %s, measured within %s", n, filled.Sub(start).Round(time.Millisecond),
			time.Since(filled).Round(time.Millisecond))
		for _, s := range m.dear() {
			t.Errorf("reads too much: %s", s)
		}
		if *plansOf > 0 {
			for _, key := range slices.Sorted(maps.Keys(m.all)) {
				fmt.Println(m.all[key])
			}
		}
		everyMethod(t, m)
		if *plansOf == 0 && n > 1000 {
			noticed(t, url, n)
		}
	})
}

// noticed fails the test unless dropping an index makes a statement exceed its
// limits.
func noticed(t *testing.T, url string, n int) {
	t.Helper()
	db := rig.OpenSQL(t, url)
	for _, missing := range []struct{ index, method string }{
		{"cards_account", "Cards "}, {"cards_state", "FindCards "}, {"cards_losses", "FindCards all  attention"},
		{"intents_waiting", "FindCards all  attention"},
		{"transfers_unattributed", "Unattributed"}, {"transfers_stray", "Strays"}, {"deliveries_delivered", "Deliveries "},
		{"transfers_seen", "ReadBooks"},
		{"cards_state", "Filtered "}, {"cards_reference", "Filtered "},
		{"credentials_key", "SealedBy credentials"}, {"cards_key", "SealedBy refund address"},
		{"stock_key", "SealedBy stock"}, {"credentials_issued", "PurgeCredentials"},
	} {
		if strings.HasPrefix(missing.index, "credentials_") && strings.HasPrefix(url, "sqlite:") {
			continue // ciphertexts in the tests are short, so the whole table has few pages
		}
		var made string
		query := "SELECT sql FROM sqlite_master WHERE name = '" + missing.index + "'"
		if !strings.HasPrefix(url, "sqlite:") {
			query = "SELECT pg_get_indexdef('" + missing.index + "'::regclass)"
		}
		check(t, db.QueryRow(query).Scan(&made))
		execPlans(t, db, "DROP INDEX "+missing.index)
		searches := (*calls).lists
		switch missing.method {
		case "ReadBooks":
			searches = (*calls).books
		case "Filtered ":
			searches = (*calls).filters
		case "SealedBy credentials", "SealedBy refund address", "SealedBy stock", "PurgeCredentials":
			searches = (*calls).sealed
		}
		dear := measure(t, url, n, searches).dear()
		if !slices.ContainsFunc(dear, func(s measured) bool { return strings.HasPrefix(s.method, missing.method) }) {
			t.Errorf("without index %s, none of these statements exceeds its limits; %d do", missing.index, len(dear))
		}
		execPlans(t, db, made)
	}
}

// everyMethod fails the test if a method of the store was not called, or if a
// called name does not exist.
func everyMethod(t *testing.T, m *meter) {
	t.Helper()
	missing := map[string]bool{}
	for prefix, of := range map[string]reflect.Type{"": reflect.TypeFor[*store.Store](),
		"tx.": reflect.TypeFor[*store.Tx]()} {
		for i := range of.NumMethod() {
			missing[prefix+of.Method(i).Name] = true
		}
	}
	for _, method := range append(m.called, "Do", "Scalar", "tx.Select") { // those are the tests'
		name, _, _ := strings.Cut(method, " ")
		delete(missing, name)
	}
	for name := range missing {
		t.Errorf("method %s was not called: add it to calls", name)
	}
	if n := len(
		slices.DeleteFunc(slices.Collect(maps.Keys(m.all)), func(key string) bool {
			return !strings.Contains(key, forAllValues)
		})); n < 20 && !m.lite {
		t.Errorf("only %d statements were explained that run often", n)
	}
}

// rawConn is a connection of either driver.
type rawConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// metered is a connector whose connections report to a meter.
type metered struct {
	driver.Connector
	m *meter
}

func (c metered) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &meteredConn{rawConn: made.(rawConn), m: c.m}, nil
}

type meteredConn struct {
	rawConn
	m    *meter
	inTx bool
}

func (c *meteredConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.rawConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *meteredConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	t, err := c.rawConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.inTx = true
	return meteredTx{t, c}, nil
}

type meteredTx struct {
	driver.Tx
	c *meteredConn
}

func (t meteredTx) Commit() error   { t.c.inTx = false; return t.Tx.Commit() }
func (t meteredTx) Rollback() error { t.c.inTx = false; return t.Tx.Rollback() }

func (c *meteredConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	end := c.start(ctx, query, args)
	defer end()
	return c.rawConn.ExecContext(ctx, query, args)
}

func (c *meteredConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	end := c.start(ctx, query, args)
	found, err := c.rawConn.QueryContext(ctx, query, args)
	return meteredRows{found, end}, err
}

type meteredRows struct {
	driver.Rows
	end func()
}

func (r meteredRows) Close() error {
	defer r.end()
	return r.Rows.Close()
}

// start explains a statement that is about to run, and returns a function to
// call afterwards.
func (c *meteredConn) start(ctx context.Context, query string, args []driver.NamedValue) (end func()) {
	s := measured{query: strings.Join(strings.Fields(query), " ")}
	verb, _, _ := strings.Cut(s.query, " ")
	if !slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}, verb) {
		return func() {}
	}
	if c.m.statements != nil {
		c.m.record(query)
		return func() {}
	}
	if !c.m.lite {
		for _, forAll := range []bool{false, true} { // the server may use a custom or a generic plan
			if forAll && !postgres.Prepares(ctx, args) {
				break
			}
			if err := c.explain(&s, query, args, forAll); err != nil {
				s.plan, s.rows = "can't be explained: "+err.Error(), mostRows+1
			}
			c.m.note(s)
			s.query = forAllValues + s.query
		}
		return func() {}
	}
	plan, err := c.texts(ctx, "EXPLAIN QUERY PLAN "+query, args)
	if err != nil {
		plan = []string{"can't be explained: " + err.Error()}
		s.pages = mostPages + 1
	}
	s.plan = strings.Join(plan, "; ")
	before, start := c.pages(), time.Now()
	return sync.OnceFunc(func() {
		s.pages += c.pages() - before
		s.took = time.Since(start)
		c.m.note(s)
	})
}

// pages returns the number of pages that the connection has read.
func (c *meteredConn) pages() (all int) {
	for _, kind := range []modernc.DBStatusOp{modernc.DBStatusCacheHit, modernc.DBStatusCacheMiss} {
		n, _, err := c.rawConn.(modernc.DBStatus).Status(kind, false)
		if err != nil {
			panic(err)
		}
		all += n
	}
	return all
}

// texts returns the last column of a query's rows.
func (c *meteredConn) texts(ctx context.Context, query string, args []driver.NamedValue) (texts []string, err error) {
	found, err := c.rawConn.QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	row := make([]driver.Value, len(found.Columns()))
	for {
		if err := found.Next(row); err != nil {
			return texts, nil
		}
		switch text := row[len(row)-1].(type) {
		case string:
			texts = append(texts, text)
		case []byte:
			texts = append(texts, string(text))
		}
	}
}

// explain runs a statement on PostgreSQL with a generic or a custom plan, and
// rolls it back.
func (c *meteredConn) explain(s *measured, query string, args []driver.NamedValue, forAll bool) error {
	ctx := context.Background() // without postgres.WithPrepare
	begin, rollBack := "BEGIN", "ROLLBACK"
	if c.inTx {
		begin, rollBack = "SAVEPOINT plans", "ROLLBACK TO SAVEPOINT plans"
	}
	if _, err := c.rawConn.ExecContext(ctx, begin, nil); err != nil {
		return err
	}
	if forAll {
		if _, err := c.rawConn.ExecContext(ctx, "SET LOCAL plan_cache_mode = force_generic_plan; PREPARE plans AS "+query,
			nil); err != nil {
			return err
		}
		query, args = "EXECUTE plans("+literals(args)+")", nil
	}
	texts, err := c.texts(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query, args)
	_, errRollBack := c.rawConn.ExecContext(ctx, rollBack, nil)
	if forAll {
		_, errForget := c.rawConn.ExecContext(ctx, "DEALLOCATE plans", nil)
		errRollBack = errors.Join(errRollBack, errForget)
	}
	if err := errors.Join(err, errRollBack); err != nil {
		return err
	}
	var plans []struct {
		Plan node
		Time float64 `json:"Execution Time"`
		JIT  any
	}
	if err := json.Unmarshal([]byte(strings.Join(texts, "")), &plans); err != nil {
		return fmt.Errorf("%w: %q", err, texts)
	}
	top := plans[0].Plan
	s.rows, s.skipped, s.pages, s.plan = top.read(), top.skipped(), top.Hit+top.Read, top.text(0)
	if plans[0].JIT != nil {
		s.rows, s.plan = mostRows+1, s.plan+"\ncompiled, which takes longer than the rest"
	}
	s.took = time.Duration(plans[0].Time * float64(time.Millisecond))
	return nil
}

// forAllValues marks a statement that was explained with a generic plan.
const forAllValues = "for all values: "

// literals returns arguments as SQL.
func literals(args []driver.NamedValue) string {
	texts := make([]string, len(args))
	for i, arg := range args {
		switch value := arg.Value.(type) {
		case nil:
			texts[i] = "NULL"
		case []byte:
			texts[i] = fmt.Sprintf(`'\x%x'`, value)
		default:
			texts[i] = pq.QuoteLiteral(fmt.Sprint(value))
		}
	}
	return strings.Join(texts, ", ")
}

// node is a node of one of PostgreSQL's plans.
type node struct {
	Type      string  `json:"Node Type"`
	Table     string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Hit       int     `json:"Shared Hit Blocks"`
	Read      int     `json:"Shared Read Blocks"`
	Plans     []node
}

// read returns the number of rows that the node and its children read from
// tables and indexes.
func (n node) read() (rows int) {
	if n.Table != "" && strings.Contains(n.Type, "Scan") || n.Type == "Bitmap Index Scan" {
		rows = int((n.Rows + n.Filtered + n.Rechecked) * n.Loops)
	}
	for _, below := range n.Plans {
		rows += below.read()
	}
	return rows
}

// skipped returns the number of these rows that index-only scans discarded.
func (n node) skipped() (rows int) {
	if n.Type == "Index Only Scan" {
		rows = int(n.Filtered * n.Loops)
	}
	for _, below := range n.Plans {
		rows += below.skipped()
	}
	return rows
}

func (n node) text(depth int) string {
	text := fmt.Sprintf("%s%s %s %s: %g of %g rows, %g times", strings.Repeat("  ", depth), n.Type, n.Table, n.Index,
		n.Rows, n.Rows+n.Filtered+n.Rechecked, n.Loops)
	for _, below := range n.Plans {
		text += "\n" + below.text(depth+1)
	}
	return text
}
