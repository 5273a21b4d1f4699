package keys_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestMain(m *testing.M) { rig.Main(m) }

// fixture is a process with encrypted data: a store, a key file and the vault
// that read it.
type fixture struct {
	t       *testing.T
	url     string
	db      *store.Store
	direct  *sql.DB // bypasses the store
	path    string
	vault   *vault.Vault
	account uuid.UUID
	log     *bytes.Buffer
}

func onEach(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) {
		s := open(t, url, vaulttest.Create(t))
		s.account = uuid.Must(uuid.NewV7())
		check(t, s.db.InsertAccount(t.Context(), account.Account{ID: s.account, Name: "shop", CreatedAt: time.Now()}))
		f(t, s)
	})
}

func open(t *testing.T, url, path string) *fixture {
	t.Helper()
	v, err := vault.Open(path)
	check(t, err)
	s := &fixture{t: t, url: url, db: storetest.Open(t, url), direct: rig.OpenSQL(t, url), path: path, vault: v,
		log: &bytes.Buffer{}}
	s.db.LogTo(slog.New(slog.DiscardHandler))
	return s
}

// secondProcess returns another process with the same database and the same key file.
func (s *fixture) secondProcess() *fixture {
	other := open(s.t, s.url, s.path)
	other.account = s.account
	return other
}

func (s *fixture) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s.log, nil)) }

func (s *fixture) rotator() *keys.Rotator {
	return keys.NewRotator(s.db, s.vault, s.logger()).InPagesOf(3)
}

func (s *fixture) reporter(name string, now func() time.Time) *keys.Reporter {
	return keys.NewReporter(s.db, s.vault, name, s.logger(), now)
}

// issue issues n cards.
func (s *fixture) issue(n int) []uuid.UUID {
	s.t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		id, err := s.issueOne()
		check(s.t, err)
		ids[i] = id
	}
	return ids
}

func plainOf(id uuid.UUID) card.Credentials {
	return card.Credentials{CardNumber: card.Secret("number " + id.String()), ExpirationDate: "11/29", SecurityCode: "123",
		URL: card.Secret("https://x.invalid/" + id.String()), URLPassword: "p"}
}

func (s *fixture) issueOne() (uuid.UUID, error) {
	ctx, c := context.Background(),
		&card.Card{UUID: uuid.Must(uuid.NewV7()), AccountID: s.account, CreatedAt: time.Now(), USD: 150_00,
			Coin: chain.Currencies()[0], Amount: 1,
			Address:   "address " + uuid.NewString(),
			Rate:      card.Rate{USD: card.Decimal{Units: 150_00000000, Scale: 8}, At: time.Now(), Source: "fixed"},
			ExpiresAt: time.Now().Add(time.Hour), ConfirmationsRequired: 10, Status: card.AwaitingPayment, State: card.Unpaid}
	if inserted, err := s.db.InsertCard(ctx, c, 0); err != nil || !inserted {
		return c.UUID, fmt.Errorf("inserted %v: %w", inserted, err)
	}
	paid := card.Verdict{Card: c, Assessment: card.Assessment{State: card.Paid, Received: 1, Settled: 1}, Issue: true}
	if err := s.db.OperatorTx(ctx, func(tx operator.Tx) error {
		return tx.SaveVerdicts(ctx, []card.Verdict{paid})
	}); err != nil {
		return c.UUID, err
	}
	claims, err := s.db.ClaimIntents(ctx,
		issue.Claim{Supplier: "sandbox", Shares: []issue.Share{{Supplier: "sandbox", Min: 0, Max: 1000_00}}}, 1, time.Hour)
	if err != nil || len(claims) != 1 {
		return c.UUID, fmt.Errorf("%d claims: %w", len(claims), err)
	}
	sealed, err := s.vault.SealCredentials(c.UUID, c.AccountID, plainOf(c.UUID))
	if err != nil {
		return c.UUID, err
	}
	return c.UUID, s.db.IssueTx(ctx, func(tx issue.Tx) error {
		if err := tx.SaveIssued(ctx,
			[]issue.IssuedCard{{Intent: claims[0], NumberHash: []byte(c.UUID.String()), Sealed: sealed}}); err != nil {
			return err
		}
		return tx.InsertEvents(ctx,
			[]card.Event{card.NewEvent(uuid.Must(uuid.NewV7()), c, card.EventGenerated, card.Generated, card.Paid)})
	})
}

// items seals cards for the stock.
func (s *fixture) items(n int) []card.StockItem {
	s.t.Helper()
	items := make([]card.StockItem, n)
	for i := range items {
		id := uuid.Must(uuid.NewV7())
		sealed, err := s.vault.SealCredentials(id, uuid.Nil, plainOf(id))
		check(s.t, err)
		items[i] = card.StockItem{ID: id, Supplier: "shelf", USD: 150_00, ExpiresAt: time.Now().AddDate(1, 0, 0),
			NumberHash: []byte(id.String()), Sealed: &sealed}
	}
	return items
}

// stock adds cards to the stock, and returns the ids of the items.
func (s *fixture) stock(n int) []uuid.UUID {
	s.t.Helper()
	ids, items := make([]uuid.UUID, n), s.items(n)
	for i, item := range items {
		ids[i] = item.ID
	}
	check(s.t, s.db.ImportStock(s.t.Context(), func(add func([]card.StockItem) error) error { return add(items) }))
	return ids
}

// refundAddress adds a refund address to a card.
func (s *fixture) refundAddress(id uuid.UUID) {
	s.t.Helper()
	sealed, err := s.vault.Seal(id, s.account, card.RefundAddressField, card.Secret("address "+id.String()))
	check(s.t, err)
	s.exec("UPDATE cards SET refund_address = $1 WHERE uuid = $2", sealed, id)
}

// hook registers a webhook with a previous secret.
func (s *fixture) hook() *webhook.Webhook {
	s.t.Helper()
	w := &webhook.Webhook{ID: uuid.Must(uuid.NewV7()), AccountID: s.account, URL: "https://x.invalid", Enabled: true,
		CreatedAt: time.Now()}
	var err error
	w.Sealed, err = s.vault.Seal(w.ID, w.AccountID, "webhook_secret", "new")
	check(s.t, err)
	w.SealedOld, err = s.vault.Seal(w.ID, w.AccountID, "webhook_secret", "old")
	check(s.t, err)
	check(s.t, s.db.WebhookTx(s.t.Context(), func(tx webhook.Tx) error {
		return errors.Join(tx.InsertWebhook(s.t.Context(), w), tx.SaveWebhook(s.t.Context(), w))
	}))
	return w
}

// wantReadable checks that this process can decrypt and mask the cards.
func (s *fixture) wantReadable(ids []uuid.UUID) {
	s.t.Helper()
	for _, id := range ids {
		c, err := s.db.CardByUUID(s.t.Context(), s.account, id)
		check(s.t, err)
		if got, err := s.vault.OpenCredentials(id, s.account, *c.Sealed); err != nil || got != plainOf(id) {
			s.t.Errorf("card %s: %v", id, err)
		}
	}
}

// users returns the number of rows that each key has sealed, from a full scan.
func (s *fixture) users(key card.KeyID) int64 {
	s.t.Helper()
	n, err := keys.Users(s.t.Context(), s.db, key)
	check(s.t, err)
	counted, err := s.db.CountSealed(s.t.Context())
	check(s.t, err)
	if counted[key] != n {
		s.t.Errorf("key %s: %d rows by index, %d by scan", key, counted[key], n)
	}
	return n
}

// promote adds a key to the key file, promotes it, and returns it with the
// previous primary key.
func (s *fixture) promote() (old, key card.KeyID) {
	s.t.Helper()
	old = s.vault.Keys().Primary
	key, err := vault.AddKey(s.path)
	check(s.t, err)
	check(s.t, keys.Promote(s.t.Context(), s.db, key, true))
	check(s.t, vault.PromoteKey(s.path, key))
	check(s.t, s.vault.Reread())
	return old, key
}

func (s *fixture) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := s.direct.Exec(statement, args...)
	check(s.t, err)
}

// faultyStore fails to replace rows, before or after the commit.
type faultyStore struct {
	*store.Store
	pages int  // that succeed first
	late  bool // the failing page is committed
	meet  func()
}

var errBroken = card.ErrUnavailable.WithCause(errors.New("killed"))

func (f *faultyStore) ReplaceSealed(ctx context.Context, set string, before, after []keys.Row) (int64, error) {
	if f.meet != nil {
		f.meet()
	}
	if f.pages--; f.pages >= 0 {
		return f.Store.ReplaceSealed(ctx, set, before, after)
	}
	if f.late {
		if _, err := f.Store.ReplaceSealed(ctx, set, before, after); err != nil {
			return 0, err
		}
	}
	return 0, errBroken
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
