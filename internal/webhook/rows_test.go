package webhook_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

var epoch = time.Date(2024, 11, 20, 14, 46, 0, 120e6, time.UTC)

var databases = storetest.Databases

// onEachStore runs a test on an open store of every database.
func onEachStore(t *testing.T, f func(t *testing.T, s *store.Store)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) { f(t, open(t, url)) })
}

func open(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, 8, chain.Currencies())
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newAccount(t testing.TB, s *store.Store) uuid.UUID {
	t.Helper()
	a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "account " + uuid.NewString(), CreatedAt: epoch}
	check(t, s.InsertAccount(t.Context(), a))
	return a.ID
}

func insertCard(t testing.TB, s *store.Store, account uuid.UUID) *card.Card {
	t.Helper()
	c := &card.Card{
		UUID: uuid.Must(uuid.NewV7()), AccountID: account, CreatedAt: epoch, USD: 150_50, Coin: chain.Currencies()[0],
		Amount:    1_003333333334,
		Address:   "address " + uuid.NewString(),
		Rate:      card.Rate{USD: card.Decimal{Units: 150_00000000, Scale: 8}, At: epoch, Source: "fixed"},
		ExpiresAt: epoch.Add(time.Hour), ConfirmationsRequired: 10, Status: card.AwaitingPayment, State: card.Unpaid,
	}
	if inserted, err := s.InsertCard(t.Context(), c, 0); err != nil || !inserted {
		t.Fatalf("card %s was not inserted: %v", c.UUID, err)
	}
	return c
}

func newWebhook(account uuid.UUID, types ...card.EventType) *webhook.Webhook {
	return &webhook.Webhook{ID: uuid.Must(uuid.NewV7()), AccountID: account, URL: "https://shop.example.com/hooks",
		Types: types, Enabled: true,
		CreatedAt: epoch, Version: 3, Sealed: []byte("sealed")}
}

func insertWebhook(t testing.TB, s *store.Store, w *webhook.Webhook) *webhook.Webhook {
	t.Helper()
	check(t, s.WebhookTx(t.Context(), func(tx webhook.Tx) error { return tx.InsertWebhook(t.Context(), w) }))
	return w
}

func newEvent(c *card.Card, kind card.EventType) card.Event {
	return card.Event{ID: uuid.Must(uuid.NewV7()), AccountID: c.AccountID, Type: kind, CardUUID: c.UUID,
		Status: card.AwaitingPayment, State: card.Detected,
		CreatedAt: epoch}
}

func insertEvents(t testing.TB, s *store.Store, es ...card.Event) {
	t.Helper()
	check(t, s.WebhookTx(t.Context(), func(tx webhook.Tx) error { return tx.InsertEvents(t.Context(), es) }))
}

// seqs returns the numbers of an account's events.
func seqs(t testing.TB, s *store.Store, account uuid.UUID) (all []int64) {
	t.Helper()
	es, err := s.Events(t.Context(), account, 0, 10_000)
	check(t, err)
	for _, e := range es {
		all = append(all, e.Seq)
	}
	return all
}

func deliveries(t testing.TB, s *store.Store, id uuid.UUID) []webhook.Delivery {
	t.Helper()
	all, err := s.Deliveries(t.Context(), id, webhook.DeliveryFilter{Limit: 10_000})
	check(t, err)
	return all
}

// wantDeliveries checks a webhook's deliveries, each written as its event's
// number and its state, newest first.
func wantDeliveries(t testing.TB, s *store.Store, id uuid.UUID, want ...string) {
	t.Helper()
	var got []string
	for _, d := range deliveries(t, s, id) {
		got = append(got, fmt.Sprint(d.Event.Seq, " ", d.State))
		if pending := d.State == webhook.DeliveryPending; pending == d.DueAt.IsZero() {
			t.Errorf("%s is due %v", got[len(got)-1], d.DueAt)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deliveries: %s", diff)
	}
}

func scalar[T any](t testing.TB, url, q string) T {
	t.Helper()
	var one T
	check(t, rig.OpenSQL(t, url).QueryRow(q).Scan(&one))
	return one
}

func wantError(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}
