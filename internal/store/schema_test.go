package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/pressly/goose/v3"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// query reads one column from the database without the store.
func query[T any](t *testing.T, url string, dest *[]T, q string) {
	t.Helper()
	found, err := rig.OpenSQL(t, url).Query(q)
	check(t, err)
	defer func() { _ = found.Close() }()
	for found.Next() {
		var one T
		check(t, found.Scan(&one))
		*dest = append(*dest, one)
	}
	check(t, found.Err())
}

func TestMigrate_BothDialectsHaveTheSameTables(t *testing.T) {
	ctx := t.Context()
	lite, pg := "sqlite:"+filepath.Join(t.TempDir(), "x.db"), rig.Postgres(t)
	for _, url := range []string{lite, pg} {
		if _, err := store.Migrate(ctx, url); err != nil {
			t.Fatal(err)
		}
	}
	var ofLite, ofPg []string
	query(t, lite, &ofLite, `SELECT m.name || '.' || c.name || CASE WHEN c."notnull" OR c.pk THEN ' not null' ELSE '' END
		FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite%' AND m.name NOT LIKE 'goose%'`)
	query(t, pg, &ofPg, `SELECT table_name || '.' || column_name || CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END
		FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'goose%'`)
	slices.Sort(ofLite)
	slices.Sort(ofPg)
	if diff := cmp.Diff(ofPg, ofLite); diff != "" {
		t.Error(diff)
	}
	if len(ofPg) < 50 {
		t.Errorf("only %d columns", len(ofPg))
	}
}

// newestSchema is the number of the last migration.
const newestSchema = 31

func TestMigrate_SeveralProcesses_OneMigrates(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: migrates four databases")
	}
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if version, err := store.Migrate(context.Background(), url); err != nil || version != newestSchema {
					t.Errorf("version %d, error %v", version, err)
				}
			})
		}
		all.Wait()
	})
}

func TestOpen_BadURLs(t *testing.T) {
	for _, url := range []string{"", "sqlite:", "mysql://x", "cardmint.db",
		"sqlite:" + filepath.Join(t.TempDir(), "no", "such", "x.db")} {
		if _, err := store.Open(t.Context(), url, 2, chain.Currencies()); err == nil {
			t.Errorf("%q: no error", url)
		}
	}
}

// TestHotPaths_CostOneRoundTrip counts, on the wire, how often PostgreSQL
// answers that it is ready for the next query.
func TestHotPaths_CostOneRoundTrip(t *testing.T) {
	proxy := startCountingProxy(t, databases.Postgres(t))
	s, err := store.Open(t.Context(), proxy.url, 1, chain.Currencies())
	check(t, err)
	defer func() { _ = s.Close() }()
	owner := newAccount(t, s)
	c := insertCard(t, s, newCard(owner))
	stockUp(t, s, 2)
	reserve(t, s, newCard(owner))
	if _, err := s.CardByUUID(t.Context(), owner, c.UUID); err != nil { // prepares the statement
		t.Fatal(err)
	}
	token := account.Token{ID: uuid.New(), AccountID: owner, Hash: []byte("hash"), CreatedAt: epoch}
	check(t, s.InsertToken(t.Context(), token))
	if _, err := s.TokenByHash(t.Context(), token.Hash); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"InsertCard":         func() error { _, err := s.InsertCard(t.Context(), newCard(owner), 0); return err },
		"InsertCard, traced": func() error { _, err := s.InsertCard(traced(t.Context()), newCard(owner), 0); return err },
		"InsertCardReserving": func() error {
			inserted, err := s.InsertCardReserving(t.Context(), newCard(owner), 0, shelf, time.Hour)
			if !inserted {
				t.Error("no card was inserted")
			}
			return err
		},
		"CardByUUID":  func() error { _, err := s.CardByUUID(t.Context(), owner, c.UUID); return err },
		"TokenByHash": func() error { _, err := s.TokenByHash(t.Context(), token.Hash); return err },
	} {
		before := proxy.ready.Load()
		check(t, call())
		if n := proxy.ready.Load() - before; n != 1 {
			t.Errorf("%s: %d round trips", name, n)
		}
	}
}

type countingProxy struct {
	url   string
	ready atomic.Int64
}

func startCountingProxy(t *testing.T, target string) *countingProxy {
	t.Helper()
	p := &countingProxy{}
	p.url = startProxy(t, target, func(client, server net.Conn) {
		go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
		go p.count(client, server)
	})
	return p
}

// startProxy calls pass for every client with a connection to the database at
// the URL target, and returns the proxy's URL.
func startProxy(t *testing.T, target string, pass func(client, server net.Conn)) string {
	t.Helper()
	host := target[strings.Index(target, "@")+1 : strings.LastIndex(target, "/")]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.DialTimeout("tcp", host, time.Second)
			if err != nil {
				_ = client.Close()
				return
			}
			pass(client, server)
		}
	}()
	return strings.Replace(target, host, l.Addr().String(), 1)
}

// count forwards the server's messages. Each is a type, a length and that many
// bytes.
func (p *countingProxy) count(client, server net.Conn) {
	defer func() { _ = client.Close() }()
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, int(head[1])<<24|int(head[2])<<16|int(head[3])<<8|int(head[4])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if head[0] == 'Z' { // ReadyForQuery
			p.ready.Add(1)
		}
		if _, err := client.Write(append(append([]byte{}, head...), body...)); err != nil {
			return
		}
	}
}

// migrateTo migrates an empty database to an earlier version of the schema.
func migrateTo(t *testing.T, url string, version int64) (*goose.Provider, *sql.DB) {
	t.Helper()
	beside := rig.OpenSQL(t, url)
	name, dialect := "sqlite", goose.DialectSQLite3
	if strings.HasPrefix(url, "postgres") {
		name, dialect = "postgres", goose.DialectPostgres
	}
	p, err := goose.NewProvider(dialect, beside, os.DirFS("migrations/"+name))
	check(t, err)
	_, err = p.UpTo(t.Context(), version)
	check(t, err)
	return p, beside
}

// The migration computes the same credits for existing cards as card.Assess.
func TestMigrate_OldCards_AreCreditedByTheRule(t *testing.T) {
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		_, beside := migrateTo(t, url, 3)
		owner := uuid.Must(uuid.NewV7())
		_, err := beside.Exec(fmt.Sprintf("INSERT INTO accounts (id, name, created_at) VALUES ('%s', 'a', 0)", owner))
		check(t, err)
		r := rand.New(rand.NewPCG(3, 4))
		states := []card.PaymentState{card.Unpaid, card.Detected, card.Underpaid, card.Confirming, card.Paid, card.Late,
			card.Expired, card.Reversed}
		var rows []string
		for i := range 800 {
			some := func() int { return r.IntN(3) * r.IntN(200) }
			rows = append(rows,
				fmt.Sprintf("('%s', '%s', 0, 1, 'monero', %d, 'a%d', 1, 0, 's', 0, 1, '%s', '%s', %d, %d, %d, %d, %d)",
					uuid.Must(uuid.NewV7()), owner,
					1+r.IntN(200), i, []card.Status{card.AwaitingPayment, card.Generated}[r.IntN(2)], states[i%len(states)], some(),
					some(), some(), some(), some()))
		}
		_, err = beside.Exec(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at,
			confirmations_required, status, payment_state, received, settled, accepted, refunded, written_off) VALUES ` + strings.Join(rows, ", "))
		check(t, err)
		migrate(t, url)
		cards, err := open(t, url).FindCards(t.Context(), operator.Search{Limit: 1000})
		check(t, err)
		if len(cards) != len(rows) {
			t.Fatalf("%d cards", len(cards))
		}
		for _, c := range cards {
			if want := card.CreditOf(c); c.Credit != want {
				t.Errorf("%+v\ncredits %+v\nwant    %+v", c, c.Credit, want)
			}
		}
	})
}

// An upgrade and a downgrade keep all events and their numbers.
func TestMigrate_ToWebhooksAndBack_KeepsEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: migrates databases to and fro")
	}
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		p, beside := migrateTo(t, url, 2)
		c := newCard(uuid.Must(uuid.NewV7()))
		var want []card.Event
		statements := []string{
			fmt.Sprintf("INSERT INTO accounts (id, name, created_at, last_seq) VALUES ('%s', 'a', 0, 2)", c.AccountID),
			fmt.Sprintf(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at,
				confirmations_required) VALUES ('%s', '%s', 0, 1, 'monero', 1, 'a', 1, 0, 's', 0, 1)`, c.UUID, c.AccountID),
		}
		for seq := range int64(2) {
			e := newEvent(c, card.EventDetected)
			e.Seq = seq + 1
			want = append(want, e)
			statements = append(statements, fmt.Sprintf(`INSERT INTO events (account_id, seq, id, type, card_uuid, status, payment_state, created_at)
				VALUES ('%s', %d, '%s', '%s', '%s', '%s', '%s', %d)`, e.AccountID, e.Seq, e.ID, e.Type, e.CardUUID, e.Status, e.State, e.CreatedAt.UnixMilli()))
		}
		for _, q := range statements {
			_, err := beside.ExecContext(ctx, q)
			check(t, err)
		}
		kept := func(s *store.Store) {
			t.Helper()
			got, err := s.Events(ctx, c.AccountID, 0, 9)
			check(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		migrate(t, url)
		s := open(t, url)
		kept(s)
		w := insertWebhook(t, s, newWebhook(c.AccountID))
		insertEvents(t, s,
			card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: c.AccountID, Type: card.EventWebhookDisabled,
				WebhookID: uuid.New(), CreatedAt: epoch})
		wantDeliveries(t, s, w.ID, "3 pending")
		check(t, s.Close())
		_, err := p.DownTo(ctx, 2)
		check(t, err)
		migrate(t, url)
		kept(open(t, url))
	})
}
