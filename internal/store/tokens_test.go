package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/store"
)

// newToken returns a token of an account, without storing it.
func newToken(owner uuid.UUID, scopes account.Scopes) account.Token {
	id := uuid.Must(uuid.NewV7())
	return account.Token{ID: id, AccountID: owner, Account: "a", Name: "n", Hash: id[:], Scopes: scopes, CreatedAt: epoch}
}

func TestTokens_ScopesAreStored(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "a", CreatedAt: epoch}
		check(t, s.InsertAccount(ctx, a))
		each := account.ScopesOf(account.KnownScopes()...)
		for _, scopes := range []account.Scopes{account.AllScopes, each,
			account.ScopesOf(account.EventsRead, account.CardsRead), 0} {
			want := newToken(a.ID, scopes)
			for range 2 { // a second time it is a no-op
				check(t, s.InsertToken(ctx, want))
			}
			for name, read := range map[string]func() (account.Token, error){
				"hash": func() (account.Token, error) { return s.TokenByHash(ctx, want.Hash) },
				"id":   func() (account.Token, error) { return s.TokenByID(ctx, want.ID) },
			} {
				got, err := read()
				check(t, err)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("by %s: %s", name, diff)
				}
			}
		}
		_, err := s.TokenByID(ctx, uuid.New())
		wantError(t, err, card.ErrNoRow)
	})
}

func TestRotateToken(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		owner := newAccount(t, s)
		expiring := func(at time.Time) account.Token {
			token := newToken(owner, account.AllScopes)
			if !at.IsZero() {
				token.ExpiresAt = &at
			}
			check(t, s.InsertToken(ctx, token))
			return token
		}
		end, now := epoch.Add(2*time.Hour), epoch.Add(time.Hour)
		rotate := func(old, successor account.Token) error {
			old.ExpiresAt, old.ReplacedBy, old.Seal = &end, successor.ID, []byte("ends")
			return s.RotateToken(ctx, old, successor, now)
		}
		for name, before := range map[string]time.Time{"never expires": {}, "expires later": epoch.Add(9 * time.Hour)} {
			old, successor := expiring(before), newToken(owner, account.ScopesOf(account.CardsRead))
			successor.Seal = []byte("begins")
			for range 2 { // the reply to the first may have been lost
				check(t, rotate(old, successor))
			}
			got, err := s.TokenByID(ctx, old.ID)
			check(t, err)
			if !got.ExpiresAt.Equal(end) || got.ReplacedBy != successor.ID || string(got.Seal) != "ends" {
				t.Errorf("%s: %+v", name, got)
			}
			got, err = s.TokenByHash(ctx, successor.Hash)
			check(t, err)
			if got.ID != successor.ID || got.Scopes != successor.Scopes || got.ReplacedBy != uuid.Nil ||
				string(got.Seal) != "begins" {
				t.Errorf("%s: %+v", name, got)
			}
			wantError(t, rotate(old, newToken(owner, account.AllScopes)), card.ErrNoRow)
		}
		revoked, expired := expiring(time.Time{}), expiring(now)
		revoked.RevokedAt = &epoch
		check(t, s.RevokeToken(ctx, revoked))
		for _, old := range []account.Token{revoked, expired, newToken(owner, account.AllScopes)} {
			wantError(t, rotate(old, newToken(owner, account.AllScopes)), card.ErrNoRow)
		}
		if all, err := s.Tokens(ctx); err != nil || len(all) != 6 {
			t.Errorf("%d tokens, error %v", len(all), err)
		}
	})
}

func TestSaveUses_TheLatestStays(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		want := map[uuid.UUID]time.Time{}
		for range 1203 { // more than fit in one statement; deleted tokens are ignored
			want[uuid.Must(uuid.NewV7())] = epoch
		}
		check(t, s.SaveUses(ctx, want))
		i, some := 0, map[uuid.UUID]time.Time{}
		for id := range want {
			switch i++; i % 3 {
			case 0:
				some[id], want[id] = epoch.Add(time.Minute), epoch.Add(time.Minute)
			case 1:
				some[id] = epoch.Add(-time.Minute)
			}
		}
		check(t, s.SaveUses(ctx, some))
		check(t, s.SaveUses(ctx, nil))
		got, err := s.TokenUses(ctx)
		check(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A program without scopes would ignore a token's restrictions.
func TestInsertToken_ProgramsWithoutScopesStayOutOnceThereIsOne(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		oldest := func() (n int64) {
			t.Helper()
			check(t, s.Scalar(t.Context(), &n, "SELECT oldest FROM schema_compatibility"))
			return n
		}
		owner := newAccount(t, s)
		check(t, s.InsertToken(t.Context(), newToken(owner, account.AllScopes)))
		if n := oldest(); n != 6 {
			t.Errorf("oldest program %d, although every token has all scopes", n)
		}
		check(t, s.InsertToken(t.Context(), newToken(owner, account.ScopesOf(account.CardsRead))))
		if n := oldest(); n != newestScopes {
			t.Errorf("%d, want %d", n, newestScopes)
		}
		_, err := store.Migration{}.With(later(t, url, "UPDATE schema_compatibility SET oldest = 6;")).Run(t.Context(), url)
		check(t, err)
		if n := oldest(); n != newestScopes {
			t.Errorf("%d after a later migration, want %d", n, newestScopes)
		}
	})
}

// newestScopes is the schema version that added scopes.
const newestScopes = 20

// A program without seals would accept a modified row.
func TestInsertToken_Sealed_EarlierVersionsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		wantOldest := func(want int64) {
			t.Helper()
			var n int64
			check(t, s.Scalar(t.Context(), &n, "SELECT oldest FROM schema_compatibility"))
			if n != want {
				t.Errorf("programs of schema %d can use the database, want %d", n, want)
			}
		}
		token := newToken(newAccount(t, s), account.AllScopes)
		check(t, s.InsertToken(t.Context(), token))
		wantOldest(6)
		const before, after = "before", "after"
		_, err := s.Setting(t.Context(), "key_check", before)
		check(t, err)
		token.Seal = []byte("seal")
		wantError(t, s.SealTokens(t.Context(), []account.Token{token}, after, before), card.ErrNoRow)
		wantOldest(6)
		check(t, s.SealTokens(t.Context(), []account.Token{token}, before, after))
		wantOldest(27)
		wantError(t, s.SealTokens(t.Context(), []account.Token{token}, before, after), card.ErrNoRow)
		if got, err := s.TokenByHash(t.Context(), token.Hash); err != nil || string(got.Seal) != "seal" {
			t.Errorf("%+v, error %v", got, err)
		}
		_, err = store.Migration{}.With(later(t, url, "UPDATE schema_compatibility SET oldest = 6;")).Run(t.Context(), url)
		check(t, err)
		wantOldest(27)
	})
}

// Existing tokens get all scopes, as do tokens that an earlier version inserts.
func TestMigrate_OldTokensHaveAllScopes(t *testing.T) {
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		_, beside := migrateTo(t, url, newestScopes-1)
		owner := uuid.Must(uuid.NewV7())
		old := func() account.Token {
			token := newToken(owner, account.AllScopes)
			_, err := beside.Exec(
				fmt.Sprintf("INSERT INTO tokens (id, account_id, name, hash, created_at) VALUES ('%s', '%s', 'n', $1, %d)",
					token.ID, owner, epoch.UnixMilli()), token.Hash)
			check(t, err)
			return token
		}
		_, err := beside.Exec(fmt.Sprintf("INSERT INTO accounts (id, name, created_at) VALUES ('%s', 'a', 0)", owner))
		check(t, err)
		want := []account.Token{old()}
		migrate(t, url)
		want = append(want, old())
		got, err := open(t, url).Tokens(t.Context())
		check(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
