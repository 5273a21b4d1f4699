package account_test

import (
	"crypto/sha256"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
)

func TestAuthenticate_Cached_LookedUpEveryTwoSeconds(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	d.accepts(t, token, text, 1)
	d.accepts(t, token, text, 0)
	d.now = epoch.Add(2*time.Second - 1)
	d.accepts(t, token, text, 0)
	d.now = epoch.Add(2 * time.Second)
	d.accepts(t, token, text, 1)
	d.now = epoch.Add(4*time.Second - 1) // counted from the second lookup
	d.accepts(t, token, text, 0)
	d.now = epoch.Add(4 * time.Second)
	d.accepts(t, token, text, 1)
	d.now = epoch.Add(time.Hour)
	d.accepts(t, token, text, 1)
	d.accepts(t, token, text, 0)
}

func TestAuthenticate_TwoTokens_CachedSeparately(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	one, oneText := d.token(t, 0)
	two, twoText := d.token(t, 0)
	d.accepts(t, one, oneText, 1)
	d.accepts(t, two, twoText, 1)
	d.accepts(t, one, oneText, 0)
	d.accepts(t, two, twoText, 0)
	check(t, d.RevokeToken(t.Context(), one.ID))
	d.now = d.now.Add(2 * time.Second)
	d.rejects(t, oneText, 1)
	d.accepts(t, two, twoText, 1)
}

func TestRecognizes_LastLookup(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, time.Hour)
	is := func(want bool) {
		t.Helper()
		if got := d.Recognizes(text); got != want {
			t.Errorf("recognized: %v", got)
		}
	}
	is(false)
	d.accepts(t, token, text, 1)
	is(true)
	d.now = epoch.Add(time.Minute) // after any time
	is(true)
	check(t, d.RevokeToken(t.Context(), token.ID))
	is(true)
	d.rejects(t, text, 1)
	is(false)
	expiring, text2 := d.token(t, time.Hour)
	d.accepts(t, expiring, text2, 1)
	d.now = d.now.Add(time.Hour)
	if d.Recognizes(text2) || d.Recognizes("") || d.Recognizes("abc") {
		t.Error("an invalid token is recognized")
	}
}

// While one request refreshes a token, concurrent requests use the cache: a
// slow database delays one request only.
func TestAuthenticate_Stale_RefreshedOnce(t *testing.T) {
	for name, age := range map[string]time.Duration{"as soon as it is not fresh": 2 * time.Second,
		"just before it is stale": 4*time.Second - 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				token, text := d.token(t, 0)
				d.accepts(t, token, text, 1)
				d.now = epoch.Add(age)
				release := make(chan struct{})
				d.store.lookup = func() { <-release }
				refreshed := make(chan error)
				go func() {
					_, err := d.Authenticate(t.Context(), text)
					refreshed <- err
				}()
				synctest.Wait() // the refresh hangs
				for range 3 {
					d.accepts(t, token, text, 0)
				}
				close(release)
				check(t, <-refreshed)
				d.accepts(t, token, text, 0)
				d.now = d.now.Add(2 * time.Second)
				d.accepts(t, token, text, 1) // the next refresh succeeds
			})
		})
	}
}

func TestAuthenticate_RevokedStoreDown_RejectedAfterFourSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		token, text := d.token(t, 0)
		d.accepts(t, token, text, 1)
		check(t, d.RevokeToken(t.Context(), token.ID))
		d.accepts(t, token, text, 0)

		// The worst case: the refresh hangs, and the cache is not updated.
		d.now = epoch.Add(2 * time.Second)
		hangs, release := true, make(chan struct{})
		d.store.lookup = func() {
			if hangs {
				hangs = false
				<-release
			}
		}
		hung := make(chan error)
		go func() {
			_, err := d.Authenticate(t.Context(), text)
			hung <- err
		}()
		synctest.Wait()
		d.now = epoch.Add(4*time.Second - 1)
		d.accepts(t, token, text, 0)
		d.now = epoch.Add(4 * time.Second)
		d.rejects(t, text, 1)
		close(release)
		wantError(t, <-hung, card.ErrUnauthorized)
		_, err := d.Authenticate(t.Context(), text)
		wantError(t, err, card.ErrUnauthorized)
	})
}

func TestAuthenticate_Revoked_RejectedAfterTwoSeconds(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	d.accepts(t, token, text, 1)
	check(t, d.RevokeToken(t.Context(), token.ID))
	d.now = epoch.Add(2 * time.Second)
	d.rejects(t, text, 1)
}

// The four seconds count from the start of the lookup: a late result may have
// been read before the token was revoked.
func TestAuthenticate_SlowLookup_AgesFromItsStart(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	d.store.lookup = func() { d.now = epoch.Add(10 * time.Second) } // a slow lookup
	d.accepts(t, token, text, 1)
	check(t, d.RevokeToken(t.Context(), token.ID))
	d.rejects(t, text, 1)
}

// A client that keeps using a revoked token costs no more lookups than one with
// a valid token.
func TestAuthenticate_Revoked_IsCached(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	check(t, d.RevokeToken(t.Context(), token.ID))
	d.rejects(t, text, 1)
	d.rejects(t, text, 0)
	d.now = epoch.Add(2 * time.Second)
	d.rejects(t, text, 1)
}

// A repeated unknown token costs one database lookup in three seconds. If it is
// created later, it is valid after them.
func TestAuthenticate_Unknown_CachedForThreeSeconds(t *testing.T) {
	t.Parallel()
	d, other := newFixture(t), newFixture(t)
	token, text := other.token(t, 0)
	_, another := other.token(t, 0)
	d.rejects(t, text, 1)
	d.rejects(t, text, 0)
	d.rejects(t, another, 1)
	d.now = epoch.Add(3*time.Second - 1)
	d.rejects(t, text, 0)
	d.now = epoch.Add(3 * time.Second)
	d.rejects(t, text, 1)

	hash, err := d.vault.Digest("token", []byte(text))
	check(t, err)
	owner, err := d.store.Store.AccountByName(t.Context(), "shop")
	check(t, err)
	token.Hash, token.AccountID = hash, owner.ID
	check(t, d.Seal(&token))
	check(t, d.store.Store.InsertToken(t.Context(), token))
	d.rejects(t, text, 0)
	d.now = epoch.Add(6 * time.Second)
	d.accepts(t, token, text, 1)
	d.accepts(t, token, text, 0)
}

// The three seconds count from the start of the lookup: the token may have been
// created before a late result.
func TestAuthenticate_SlowLookupUnknown_AgesFromItsStart(t *testing.T) {
	t.Parallel()
	d, other := newFixture(t), newFixture(t)
	_, text := other.token(t, 0)
	d.store.lookup = func() { d.now = d.now.Add(3 * time.Second) }
	d.rejects(t, text, 1)
	d.rejects(t, text, 1)
}

// Invented tokens can't fill the memory: only the newest are cached.
func TestAuthenticate_ManyUnknown_BoundedMemory(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.store.unknown = true // avoids slow lookups
	for n := range int64(15_000) {
		d.rejects(t, account.MadeUp(n), 1)
	}
	d.rejects(t, account.MadeUp(15_000-1), 0)
	d.rejects(t, account.MadeUp(15_000-5_000), 0)
	d.rejects(t, account.MadeUp(15_000-10_001), 1)
}

// The hash is keyed: with read access to the database alone, guesses can't be
// checked against it.
func TestCreateToken_Hash_IsKeyed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	want, err := d.vault.Digest("token", []byte(text))
	check(t, err)
	if plain := sha256.Sum256([]byte(text)); string(token.Hash) != string(want) || string(token.Hash) == string(plain[:]) {
		t.Errorf("hash %x", token.Hash)
	}
	if _, err := d.with(t, vaulttest.New(t), "").Authenticate(t.Context(), text); !errors.Is(err, card.ErrUnauthorized) {
		t.Errorf("with other keys: %v", err)
	}
}

func TestAuthenticate_RowDeleted_Rejected(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	d.accepts(t, token, text, 1)
	_, err := rig.OpenSQL(t, d.url).Exec("DELETE FROM tokens")
	check(t, err)
	d.now = epoch.Add(2 * time.Second)
	d.rejects(t, text, 1)
	d.now = epoch.Add(5*time.Second - 1)
	d.rejects(t, text, 0) // like a token that never existed
	d.now = epoch.Add(5 * time.Second)
	d.rejects(t, text, 1)
}

func TestAuthenticate_AtExpiry_Rejected(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, time.Second)
	d.accepts(t, token, text, 1)
	d.now = epoch.Add(time.Second - 1)
	d.accepts(t, token, text, 0)
	d.now = epoch.Add(time.Second)
	d.rejects(t, text, 0) // despite the cache
	d.now = epoch.Add(time.Minute)
	d.rejects(t, text, 1)

	d.now = epoch
	_, text = d.token(t, time.Hour)
	d.now = epoch.Add(time.Hour)
	d.rejects(t, text, 1) // also without the cache
}

func TestAuthenticate_NoTTL_DoesNotExpire(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	if token.ExpiresAt != nil {
		t.Errorf("expires at %v", token.ExpiresAt)
	}
	d.now = epoch.AddDate(100, 0, 0)
	d.accepts(t, token, text, 1)
}

// A failed lookup must not look like an invalid token.
func TestAuthenticate_StoreFails_IsNotUnauthorized(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	fails := func() {
		t.Helper()
		who, err := d.Authenticate(t.Context(), text)
		if who != (account.Identity{}) || !errors.Is(err, card.ErrUnavailable) || errors.Is(err, card.ErrUnauthorized) {
			t.Errorf("%+v, error %v", who, err)
		}
	}
	d.store.fails = "TokenByHash"
	fails()
	d.store.fails = ""
	d.accepts(t, token, text, 1)

	d.store.fails = "TokenByHash"
	d.now = epoch.Add(2 * time.Second)
	fails()                      // the request that refreshes
	d.accepts(t, token, text, 0) // concurrent requests
	d.now = epoch.Add(4*time.Second - 1)
	d.accepts(t, token, text, 0)
	d.now = epoch.Add(4 * time.Second)
	fails()
	fails()
	d.store.fails = ""
	d.accepts(t, token, text, 1)
}

func TestAuthenticate_VaultFails_IsNotUnauthorized(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	_, text := d.token(t, 0)
	who, err := d.with(t, failingVault{d.vault, "token"}, "").Authenticate(t.Context(), text)
	if who != (account.Identity{}) || !errors.Is(err, errVault) || errors.Is(err, card.ErrUnauthorized) {
		t.Errorf("%+v, error %v", who, err)
	}
	if n := d.store.lookups.Load(); n != 0 {
		t.Errorf("looked up %d times", n)
	}
}

// Config.Now defaults to time.Now, which is the bubble's clock here.
func TestAuthenticate_NoClock_UsesRealTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		var err error
		d.Service, err = account.New(d.store, d.vault, account.Config{})
		check(t, err)
		token, text := d.token(t, time.Minute)
		if want := time.Now().Add(time.Minute); !token.ExpiresAt.Equal(want) {
			t.Errorf("expires at %v, want %v", token.ExpiresAt, want)
		}
		d.accepts(t, token, text, 1)
		time.Sleep(2 * time.Second)
		d.accepts(t, token, text, 1)
		time.Sleep(time.Minute - 2*time.Second)
		d.rejects(t, text, 1)
	})
}
