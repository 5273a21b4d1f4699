package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// Each run cuts the connection at one request or reply of each method,
// including COMMIT. Once the method succeeds, at the first call or when
// repeated, the rows are the same as without the cut.
func TestCuts_LostConnection_NothingHappensTwice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: needs PostgreSQL")
	}
	filled := &rig.Databases{Migrate: func(url string) error { // once, and copied
		if _, err := store.Migrate(t.Context(), url); err != nil {
			return err
		}
		fillPlans(t, url, cutCards)
		return nil
	}}
	want := cutting(t, filled, 0, false, nil)
	cuts := map[string]int{}
	for _, before := range []bool{false, true} {
		for nth := int64(1); nth <= 8; nth++ {
			for method, n := range cutting(t, filled, nth, before, want).cuts {
				cuts[method] += n
			}
		}
	}
	most := 0
	for _, n := range cuts {
		most = max(most, n)
	}
	t.Logf("%d methods were cut, at up to %d places", len(cuts), most)
	for _, method := range want.methods { // without a cut the test proves nothing
		if cuts[method] == 0 && !withoutDatabase[method] {
			t.Errorf("%s was never cut", method)
		}
	}
}

// cutCards is the number of cards. A second call of a method that claims items
// must find more of them.
const cutCards = 2000

// withoutDatabase are the methods that run no statements.
var withoutDatabase = map[string]bool{"LogTo": true, "LongestWrite": true, "ReportCorrupt": true, "Schema": true,
	"SealedSets": true, "SingleWriter": true, "ShareDetector": true, "RequireAttestation": true, "Close": true,
	"Pools": true}

// deleteSome are the methods that delete the oldest n rows. A second call
// deletes more of them, which is harmless.
var deleteSome = map[string]bool{"DeleteDeliveries": true, "PruneDeliveries": true}

// notTwice are the errors of methods whose second call detects the effect of
// the first.
var notTwice = []error{card.ErrDuplicate, card.ErrFenced, card.ErrNoRow}

// cutRun is the effect of calling every method.
type cutRun struct {
	methods []string
	added   []map[string]int // rows by method and table
	cuts    map[string]int   // by method
}

// cutting calls every method of the store, and cuts the connection of each at
// its nth exchange with the server: before the request arrives, or before the
// reply does. It compares the rows after each method with want. If nth is 0,
// nothing is cut.
func cutting(t *testing.T, filled *rig.Databases, nth int64, before bool, want *cutRun) *cutRun {
	t.Helper()
	url := filled.Postgres(t)
	line := startCuttable(t, url)
	s, err := store.Open(t.Context(), line.url, 4, chain.Currencies())
	check(t, err)
	defer func() { _ = s.Close() }()
	count := countRows(t, rig.OpenSQL(t, url))
	run := &cutRun{cuts: map[string]int{}}
	where := fmt.Sprintf("reply %d lost", nth)
	if before {
		where = fmt.Sprintf("request %d lost", nth)
	}
	c := &calls{t: t, s: s, n: cutCards, begin: func(string) {}, own: newAccount(t, s)}
	had := count()
	c.call = func(method string, f func(context.Context) error) {
		line.arm(nth, before)
		err := f(t.Context())
		cut := line.disarm()
		if cut {
			run.cuts[method]++
		}
		if cut && err != nil {
			err = f(t.Context())
			if slices.ContainsFunc(notTwice, func(known error) bool { return errors.Is(err, known) }) {
				err = nil
			}
		}
		if err != nil {
			t.Fatalf("%s, %s: %v", method, where, err)
		}
		if want != nil && !cut && !deleteSome[method] { // counted together with the next cut method
			for table, n := range want.added[len(run.added)] {
				had[table] += n
			}
			run.methods, run.added = append(run.methods, method), append(run.added, nil)
			return
		}
		rows := count()
		added := map[string]int{}
		for table, n := range rows {
			added[table] = n - had[table]
		}
		had = rows
		if want != nil && !deleteSome[method] {
			wantRows(t, method+" adds, "+where, added, want.added[len(run.added)])
		}
		run.methods, run.added = append(run.methods, method), append(run.added, added)
	}
	c.methods()
	wantRows(t, "in the end, "+where, count(), had)
	return run
}

// wantRows compares the row count of each table.
func wantRows(t *testing.T, where string, rows, want map[string]int) {
	t.Helper()
	for table, must := range want {
		if table == "books_notes" { // depends on the age of rows; an extra one only causes a reading
			continue
		}
		if n := rows[table]; n != must {
			t.Errorf("%s: %d rows in %s, want %d", where, n, table, must)
		}
	}
}

// countRows returns a function that counts the rows of every table.
func countRows(t *testing.T, db *sql.DB) func() map[string]int {
	t.Helper()
	var names, counts string
	check(t, db.QueryRow(`SELECT string_agg(table_name, ' '), string_agg(format('(SELECT COUNT(*) FROM %I)', table_name), ' || '' '' || ')
		FROM information_schema.tables WHERE table_schema = 'public'`).Scan(&names, &counts))
	counting, err := db.Prepare("SELECT " + counts)
	check(t, err)
	return func() map[string]int {
		var found string
		check(t, counting.QueryRow().Scan(&found))
		n, counted := map[string]int{}, strings.Fields(found)
		for i, table := range strings.Fields(names) {
			n[table], err = strconv.Atoi(counted[i])
			check(t, err)
		}
		return n
	}
}

// cuttable is a proxy that cuts connections.
type cuttable struct {
	url    string
	left   atomic.Int64 // exchanges until the cut; 0 or less for none
	before atomic.Bool  // cut before the request, otherwise before the reply
	cut    atomic.Bool
}

func startCuttable(t *testing.T, target string) *cuttable {
	t.Helper()
	p := &cuttable{}
	p.url = startProxy(t, target, func(client, server net.Conn) {
		end := func() { _ = client.Close(); _ = server.Close() }
		begun := make(chan struct{})
		go func() { defer end(); p.requests(client, server, begun) }()
		go func() { defer end(); p.replies(client, server, begun) }()
	})
	return p
}

func (p *cuttable) arm(nth int64, before bool) {
	p.cut.Store(false)
	p.before.Store(before)
	p.left.Store(nth)
}

// disarm disables the cut, and reports whether it happened.
func (p *cuttable) disarm() bool {
	p.left.Store(0)
	return p.cut.Load()
}

// loses reports whether the connection must be cut at this exchange.
func (p *cuttable) loses(before bool) bool {
	if p.before.Load() != before || p.left.Load() <= 0 || p.left.Add(-1) != 0 {
		return false
	}
	p.cut.Store(true)
	return true
}

// requests forwards the client's messages. A request ends with a Query or a
// Sync.
func (p *cuttable) requests(client, server net.Conn, begun <-chan struct{}) {
	for first := true; ; {
		head := make([]byte, 5)
		if first { // startup messages have no type
			if n, err := client.Read(head[:1]); err != nil || n == 0 {
				return
			}
			if head[0] == 0 {
				rest := make([]byte, 3)
				if _, err := io.ReadFull(client, rest); err != nil {
					return
				}
				body := make([]byte, int(rest[0])<<16|int(rest[1])<<8|int(rest[2])-4)
				if _, err := io.ReadFull(client, body); err != nil {
					return
				}
				if _, err := server.Write(slices.Concat(head[:1], rest, body)); err != nil {
					return
				}
				continue
			}
			first = false
			if _, err := io.ReadFull(client, head[1:]); err != nil {
				return
			}
		} else if _, err := io.ReadFull(client, head); err != nil {
			return
		}
		body := make([]byte, int(head[1])<<24|int(head[2])<<16|int(head[3])<<8|int(head[4])-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		select {
		case <-begun:
			if (head[0] == 'Q' || head[0] == 'S') && p.loses(true) {
				return
			}
		default: // authentication
		}
		if _, err := server.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// replies forwards the server's messages. A reply ends with ReadyForQuery. The
// first one ends authentication.
func (p *cuttable) replies(client, server net.Conn, begun chan<- struct{}) {
	first := true
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, int(head[1])<<24|int(head[2])<<16|int(head[3])<<8|int(head[4])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		switch {
		case head[0] == 'Z' && first:
			first = false
			close(begun)
		case head[0] == 'Z' && p.loses(false):
			return
		}
		if _, err := client.Write(slices.Concat(head, body)); err != nil {
			return
		}
	}
}
