package account_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

var epoch = time.Date(2024, 11, 20, 14, 46, 0, 120e6, time.UTC)

var databases = storetest.Databases

// fixture is a service with a real store, a real vault and a clock that only
// the test moves.
type fixture struct {
	*account.Service
	store *countingStore
	vault *vault.Vault
	url   string // of the database
	now   time.Time
}

// newFixture returns a fixture with the account "shop".
func newFixture(t *testing.T) *fixture {
	t.Helper()
	d := &fixture{url: databases.SQLite(t), vault: vaulttest.New(t), now: epoch}
	d.store = &countingStore{Store: storetest.Open(t, d.url)}
	d.Service = d.with(t, d.vault, "")
	_, err := d.CreateAccount(t.Context(), "shop")
	check(t, err)
	return d
}

// with returns another service on the same store, with the same clock.
func (d *fixture) with(t *testing.T, v account.Vault, mode string) *account.Service {
	t.Helper()
	s, err := account.New(d.store, v, account.Config{Mode: mode, Now: func() time.Time { return d.now }})
	check(t, err)
	return s
}

// configured returns another service on the same store, with the same keys and
// clock.
func (d *fixture) configured(t *testing.T, cfg account.Config) *account.Service {
	t.Helper()
	cfg.Now = func() time.Time { return d.now }
	s, err := account.New(d.store, d.vault, cfg)
	check(t, err)
	return s
}

// token creates a token of the account "shop".
func (d *fixture) token(t *testing.T, ttl time.Duration) (account.Token, string) {
	t.Helper()
	token, text, err := d.CreateToken(t.Context(), "shop",
		account.TokenRequest{Name: "checkout", Scopes: account.AllScopes, TTL: ttl})
	check(t, err)
	return token, text.Reveal()
}

// accepts checks that the token is accepted, after this number of lookups in
// the store.
func (d *fixture) accepts(t *testing.T, token account.Token, text string, lookups int64) {
	t.Helper()
	before := d.store.lookups.Load()
	who, err := d.Authenticate(t.Context(), text)
	if want := (account.Identity{TokenID: token.ID, AccountID: token.AccountID, Scopes: token.Scopes}); err != nil ||
		who != want {
		t.Errorf("at %v: %+v, error %v; want %+v", d.now.Sub(epoch), who, err, want)
	}
	if n := d.store.lookups.Load() - before; n != lookups {
		t.Errorf("at %v: looked up %d times, want %d", d.now.Sub(epoch), n, lookups)
	}
}

// rejects checks that the token is rejected, after this number of lookups in
// the store.
func (d *fixture) rejects(t *testing.T, text string, lookups int64) {
	t.Helper()
	before := d.store.lookups.Load()
	who, err := d.Authenticate(t.Context(), text)
	if !errors.Is(err, card.ErrUnauthorized) || who != (account.Identity{}) {
		t.Errorf("%q at %v: %+v, error %v; want it rejected", text, d.now.Sub(epoch), who, err)
	}
	if n := d.store.lookups.Load() - before; n != lookups {
		t.Errorf("%q at %v: looked up %d times, want %d", text, d.now.Sub(epoch), n, lookups)
	}
}

// countingStore counts token lookups in a real store, and can fail.
type countingStore struct {
	*store.Store
	lookups  atomic.Int64
	saves    atomic.Int64
	fails    string // the method that returns errStore
	lookup   func() // runs before a token is looked up; may be nil
	rotating func() // runs before a token is rotated; may be nil
	unknown  bool   // every lookup finds no token
}

var errStore = card.ErrUnavailable.WithCause(errors.New("the database restarts"))

func (w *countingStore) failure(method string) error {
	if w.fails == method {
		return errStore
	}
	return nil
}

func (w *countingStore) InsertAccount(ctx context.Context, a account.Account) error {
	if err := w.failure("InsertAccount"); err != nil {
		return err
	}
	return w.Store.InsertAccount(ctx, a)
}

func (w *countingStore) AccountByName(ctx context.Context, name string) (account.Account, error) {
	if err := w.failure("AccountByName"); err != nil {
		return account.Account{}, err
	}
	return w.Store.AccountByName(ctx, name)
}

func (w *countingStore) InsertToken(ctx context.Context, t account.Token) error {
	if err := w.failure("InsertToken"); err != nil {
		return err
	}
	return w.Store.InsertToken(ctx, t)
}

func (w *countingStore) TokenByHash(ctx context.Context, hash []byte) (account.Token, error) {
	w.lookups.Add(1)
	if w.lookup != nil {
		w.lookup()
	}
	if err := w.failure("TokenByHash"); err != nil {
		return account.Token{}, err
	}
	if w.unknown {
		return account.Token{}, card.ErrNoRow
	}
	return w.Store.TokenByHash(ctx, hash)
}

func (w *countingStore) RevokeToken(ctx context.Context, t account.Token) error {
	if err := w.failure("RevokeToken"); err != nil {
		return err
	}
	return w.Store.RevokeToken(ctx, t)
}

func (w *countingStore) RotateToken(ctx context.Context, old, successor account.Token, now time.Time) error {
	if w.rotating != nil {
		w.rotating()
	}
	if err := w.failure("RotateToken"); err != nil {
		return err
	}
	return w.Store.RotateToken(ctx, old, successor, now)
}

func (w *countingStore) SaveUses(ctx context.Context, uses map[uuid.UUID]time.Time) error {
	w.saves.Add(1)
	if err := w.failure("SaveUses"); err != nil {
		return err
	}
	return w.Store.SaveUses(ctx, uses)
}

func (w *countingStore) Setting(ctx context.Context, name, proposed string) (string, error) {
	if err := w.failure("Setting"); err != nil {
		return "", err
	}
	return w.Store.Setting(ctx, name, proposed)
}

// failingVault is a real vault that fails for one purpose.
type failingVault struct {
	account.Vault
	fails string
}

var errVault = errors.New("no key")

func (f failingVault) Digest(label string, data []byte) ([]byte, error) {
	if f.fails == label {
		return nil, errVault
	}
	return f.Vault.Digest(label, data)
}

func (f failingVault) Seal(id, account uuid.UUID, field string, plaintext card.Secret) ([]byte, error) {
	if f.fails == "seal" {
		return nil, errVault
	}
	return f.Vault.Seal(id, account, field, plaintext)
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
