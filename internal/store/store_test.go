package store_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/store"
)

func TestMain(m *testing.M) { rig.Main(m) }

var databases = storetest.Databases

// onEach runs a test on an empty database of each kind.
func onEach(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	storetest.Each(t, f)
}

// conform runs a test on a new store of each kind of database.
func conform(t *testing.T, f func(t *testing.T, s *store.Store)) {
	t.Helper()
	onEach(t, func(t *testing.T, url string) { f(t, open(t, url)) })
}

func open(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, 8, chain.Currencies())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// openNew creates the schema of a new database, and opens it.
func openNew(t testing.TB, url string) *store.Store {
	t.Helper()
	_, err := store.Migrate(t.Context(), url)
	check(t, err)
	return open(t, url)
}

var epoch = time.Date(2024, 11, 20, 14, 46, 0, 120e6, time.UTC)

func newAccount(t testing.TB, s *store.Store) uuid.UUID {
	t.Helper()
	a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "account " + uuid.NewString(), CreatedAt: epoch}
	check(t, s.InsertAccount(t.Context(), a))
	return a.ID
}

func newCard(account uuid.UUID) *card.Card {
	return &card.Card{
		UUID: uuid.Must(uuid.NewV7()), AccountID: account, CreatedAt: epoch, USD: 150_50, Coin: chain.Currencies()[0],
		Amount:    1_003333333334,
		Address:   "address " + uuid.NewString(),
		Rate:      card.Rate{USD: card.Decimal{Units: 150_00000000, Scale: 8}, At: epoch, Source: "fixed"},
		ExpiresAt: epoch.Add(time.Hour), ConfirmationsRequired: 10, Status: card.AwaitingPayment, State: card.Unpaid,
	}
}

func insertCard(t testing.TB, s *store.Store, c *card.Card) *card.Card {
	t.Helper()
	inserted, err := s.InsertCard(t.Context(), c, 0)
	check(t, err)
	if !inserted {
		t.Fatalf("card %s was not inserted", c.UUID)
	}
	return c
}

// verdicts pairs cards with assessments. Paid cards must be issued.
func verdicts(cards []*card.Card, as ...card.Assessment) []card.Verdict {
	vs := make([]card.Verdict, len(cards))
	for i, c := range cards {
		vs[i] = card.Verdict{Card: c, Assessment: as[i], Issue: as[i].State == card.Paid}
	}
	return vs
}

func inTx(t testing.TB, s *store.Store, f func(ctx context.Context, tx *store.Tx) error) {
	t.Helper()
	check(t, s.Do(t.Context(), func(tx *store.Tx) error { return f(t.Context(), tx) }))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}

// SQLite deletes the log only when the last connection has no open statements.
func TestClose_SQLite_ClosesCachedStatements(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	s := open(t, url)
	owner := newAccount(t, s)
	_, err := s.CardByUUID(t.Context(), owner, insertCard(t, s, newCard(owner)).UUID)
	check(t, err)
	log := strings.TrimPrefix(url, "sqlite:") + "-wal"
	_, err = os.Stat(log)
	check(t, err)
	check(t, s.Close())
	if _, err := os.Stat(log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log still exists: %v", err)
	}
}
