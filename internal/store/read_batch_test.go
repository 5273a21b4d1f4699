package store_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// onPostgres opens a new PostgreSQL database.
func onPostgres(t *testing.T) (*store.Store, string) {
	t.Helper()
	t.Parallel()
	url := databases.Postgres(t)
	return open(t, url), url
}

// received stores payments to a card.
func received(t *testing.T, s *store.Store, c *card.Card, units card.Amount) {
	t.Helper()
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.UpsertTransfers(ctx, []card.Transfer{newTransfer(uuid.NewString(), 0, c.Address, units)}); err != nil {
			return err
		}
		return tx.SaveVerdicts(ctx,
			[]card.Verdict{{Card: c, Assessment: card.Assessment{State: card.Confirming, Received: units}}})
	})
}

// A shared statement returns the same rows as separate ones.
func TestCardByUUID_InBatch_SameResultAsAlone(t *testing.T) {
	s, url := onPostgres(t)
	account, other := newAccount(t, s), newAccount(t, s)
	type reading struct {
		account, id uuid.UUID
		card        *card.Card
		err         error
		tag         string
		tagErr      error
	}
	var all []*reading
	add := func(account, id uuid.UUID) { all = append(all, &reading{account: account, id: id}) }
	for i := range 30 {
		c := insertCard(t, s, newCard(account))
		if i%3 == 0 {
			received(t, s, c, card.Amount(i+1))
		}
		add(account, c.UUID)
		if i%5 == 0 {
			add(account, c.UUID)
			add(other, c.UUID)
			add(account, uuid.Must(uuid.NewV7()))
		}
	}
	corrupt := insertCard(t, s, newCard(account))
	_, err := rig.OpenSQL(t, url).Exec(corruptions["state"], corrupt.UUID)
	check(t, err)
	add(account, corrupt.UUID)

	waiting, release := store.HoldReads(s)
	var reads sync.WaitGroup
	for _, r := range all {
		reads.Go(func() { r.card, r.err = s.CardByUUID(t.Context(), r.account, r.id) })
		reads.Go(func() { r.tag, r.tagErr = s.CardTag(t.Context(), r.account, r.id) })
	}
	for waiting() < 2*len(all) {
		runtime.Gosched()
	}
	release()
	reads.Wait()
	for i, r := range all {
		alone, err := s.CardByUUID(t.Context(), r.account, r.id)
		if diff := cmp.Diff(alone, r.card); diff != "" || (err == nil) != (r.err == nil) ||
			errors.Is(err, card.ErrNoRow) != errors.Is(r.err, card.ErrNoRow) {
			t.Errorf("reading %d: error %v, alone %v; %s", i, r.err, err, diff)
		}
		if r.account == other && !errors.Is(r.err, card.ErrNoRow) {
			t.Errorf("reading %d: another account's card: error %v", i, r.err)
		}
		tag, err := s.CardTag(t.Context(), r.account, r.id)
		if tag != r.tag || errors.Is(err, card.ErrNoRow) != errors.Is(r.tagErr, card.ErrNoRow) || r.card != nil &&
			r.tag != r.card.Tag {
			t.Errorf("reading %d: tag %q, error %v; alone %q, error %v", i, r.tag, r.tagErr, tag, err)
		}
	}
	wantCorrupt(t, all[len(all)-1].err, corrupt)
}

func TestCardByUUID_CanceledInBatch_OthersAreRead(t *testing.T) {
	s, _ := onPostgres(t)
	c := insertCard(t, s, newCard(newAccount(t, s)))
	waiting, release := store.HoldReads(s)
	read := func(ctx context.Context) <-chan error {
		n, failed := waiting(), make(chan error, 1)
		go func() {
			_, err := s.CardByUUID(ctx, c.AccountID, c.UUID)
			failed <- err
		}()
		for waiting() == n {
			runtime.Gosched()
		}
		return failed
	}
	impatient, giveUp := context.WithCancel(t.Context())
	first, second := read(impatient), read(t.Context())
	giveUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if n := waiting(); n != 1 {
		t.Errorf("%d wait", n)
	}
	release()
	check(t, <-second)
}

// slow opens connections that return the rows of single cards only after a
// receive from returns.
type slow struct {
	driver.Connector
	found   chan struct{}
	returns chan struct{}
}

// openSlow opens a database through slow connections.
func openSlow(t *testing.T, url string) (*store.Store, *slow) {
	t.Helper()
	conns := &slow{found: make(chan struct{}), returns: make(chan struct{})}
	s, err := store.OpenThrough(t.Context(), url, 8, chain.Currencies(), func(c driver.Connector) driver.Connector {
		conns.Connector = c
		return conns
	})
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, conns
}

func (s *slow) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return slowConn{made.(rawConn), s}, nil
}

type slowConn struct {
	rawConn
	s *slow
}

func (c slowConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.rawConn.QueryContext(ctx, query, args)
	if strings.Contains(query, "AS has_activity") {
		c.s.found <- struct{}{}
		<-c.s.returns
	}
	return rows, err
}

func (c slowConn) CheckNamedValue(v *driver.NamedValue) error {
	return c.rawConn.(driver.NamedValueChecker).CheckNamedValue(v)
}

// A call after a change must not share a statement that was sent before it.
func TestCardByUUID_StatementSentBefore_IsNotShared(t *testing.T) {
	other, url := onPostgres(t)
	c := insertCard(t, other, newCard(newAccount(t, other)))
	s, conns := openSlow(t, url)
	type answer struct {
		card *card.Card
		err  error
	}
	read := func() <-chan answer {
		answers := make(chan answer, 1)
		go func() {
			found, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
			answers <- answer{found, err}
		}()
		return answers
	}
	var before, after []<-chan answer
	for range store.ReadWorkers {
		before = append(before, read())
		<-conns.found
		time.Sleep(2 * store.SlowRead)
	}
	go func() {
		for range conns.found { // calls that waited for MaxWait run their own statements
		}
	}()
	for units := range card.Amount(3) { // each read starts after one more change
		received(t, other, c, units+1)
		after = append(after, read())
		time.Sleep(20 * time.Millisecond) // time to join a batch
	}
	close(conns.returns)
	for _, answers := range before {
		if got := <-answers; got.err != nil || got.card.Received != 0 {
			t.Errorf("asked before the change: %+v", got)
		}
	}
	for i, answers := range after {
		if got := <-answers; got.err != nil || got.card.Received < card.Amount(i+1) {
			t.Errorf("asked after change %d: %+v", i+1, got)
		}
	}
}

// Stuck connections delay other reads for at most maxReadWait.
func TestCardByUUID_AllWorkersStuck_ReadsAlone(t *testing.T) {
	_, url := onPostgres(t)
	s, conns := openSlow(t, url)
	c := insertCard(t, s, newCard(newAccount(t, s)))
	var stuck sync.WaitGroup
	for range store.ReadWorkers {
		stuck.Go(func() { _, _ = s.CardByUUID(t.Context(), c.AccountID, c.UUID) })
		<-conns.found
		time.Sleep(2 * store.SlowRead)
	}
	read := make(chan error, 1)
	go func() {
		_, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
		read <- err
	}()
	<-conns.found // runs its own statement
	conns.returns <- struct{}{}
	conns.returns <- struct{}{}
	conns.returns <- struct{}{}
	check(t, <-read)
	stuck.Wait()
}

// While one statement is slow, because of a stuck connection or a distant
// database, other calls start a second one.
func TestCardByUUID_OneSlowStatement_StartsAnother(t *testing.T) {
	_, url := onPostgres(t)
	s, conns := openSlow(t, url)
	store.WaitForever(s)
	c := insertCard(t, s, newCard(newAccount(t, s)))
	var reads sync.WaitGroup
	read := func() { reads.Go(func() { _, _ = s.CardByUUID(t.Context(), c.AccountID, c.UUID) }) }
	read()
	<-conns.found
	time.Sleep(2 * store.SlowRead)
	read()
	<-conns.found
	conns.returns <- struct{}{}
	conns.returns <- struct{}{}
	reads.Wait()
}

func TestCardByUUID_CardWithActivity_UsesFullQuery(t *testing.T) {
	t.Parallel()
	s := openSession(t, databases.Postgres(t))
	read := func(c *card.Card, want card.Amount) {
		t.Helper()
		got, err := s.CardByUUID(t.Context(), c.AccountID, c.UUID)
		check(t, err)
		tag, err := s.CardTag(t.Context(), c.AccountID, c.UUID)
		if err != nil || got.Received != want || tag != got.Tag {
			t.Errorf("received %d, want %d; tag %s, want %s; error %v", got.Received, want, got.Tag, tag, err)
		}
		if _, err := s.CardByUUID(t.Context(), uuid.New(), c.UUID); !errors.Is(err, card.ErrNoRow) {
			t.Errorf("another account's card: error %v", err)
		}
	}
	alone := func() (uses int) {
		check(t, s.Do(t.Context(), func(tx *store.Tx) error {
			_, uses = plans(t, tx, "AS has_activity")
			return nil
		}))
		return uses
	}
	c := insertCard(t, s, newCard(newAccount(t, s)))
	read(c, 0)
	for i := range 4 {
		before := alone()
		received(t, s, c, card.Amount(i+1))
		read(c, card.Amount(i+1))
		want := 1 // the other account's card
		if i == 0 {
			want = 3
		}
		if n := alone() - before; n != want {
			t.Errorf("after %d payments: read alone %d times, want %d", i+1, n, want)
		}
	}
	inTx(t, s, func(ctx context.Context, tx *store.Tx) error { // a reorganization removed all payments
		return tx.SaveVerdicts(ctx, []card.Verdict{{Card: c, Assessment: card.Assessment{State: card.Unpaid}}})
	})
	read(c, 0)
}

func TestCardByUUID_ManyActiveCards_RemembersSome(t *testing.T) {
	t.Parallel()
	s, account := open(t, databases.SQLite(t)), uuid.New()
	for i := range 2 * store.MaxActive {
		if n := store.SetActive(s, account, uuid.New()); n != min(i+1, store.MaxActive) {
			t.Fatalf("%d cards are remembered after %d", n, i+1)
		}
	}
}

// Planning the full query takes five times as long as running it.
func TestCardByUUID_SharedStatements_ArePlannedOnce(t *testing.T) {
	t.Parallel()
	s := openSession(t, databases.Postgres(t))
	account := newAccount(t, s)
	ids := []uuid.UUID{insertCard(t, s, newCard(account)).UUID, insertCard(t, s, newCard(account)).UUID}
	for range 20 {
		check(t, store.ReadTogether(s, account, ids...))
	}
	check(t, s.Do(t.Context(), func(tx *store.Tx) error {
		var rows []struct {
			Statement string `db:"statement"`
			Custom    int    `db:"custom_plans"`
			Generic   int    `db:"generic_plans"`
		}
		check(t, tx.Select(t.Context(), &rows,
			"SELECT statement, custom_plans, generic_plans FROM pg_prepared_statements WHERE statement LIKE '%FROM cards c%ANY%'"))
		for _, row := range rows {
			if row.Custom > 5 || row.Generic == 0 { // PostgreSQL plans a statement five times before it plans for all values
				t.Errorf("planned %d times for its values, %d times not: %.60s", row.Custom, row.Generic, row.Statement)
			}
		}
		if len(rows) != 4 {
			t.Errorf("%d statements are shared, want 4", len(rows))
		}
		return nil
	}))
}
