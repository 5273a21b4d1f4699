package account_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// readOnlyToken creates a token of the account "shop" with read access and a time to
// live.
func (d *fixture) readOnlyToken(t *testing.T, ttl time.Duration) (account.Token, string) {
	t.Helper()
	token, text, err := d.CreateToken(t.Context(), "shop",
		account.TokenRequest{Name: "books", Scopes: account.ScopesOf(account.CardsRead, account.EventsRead), TTL: ttl})
	check(t, err)
	return token, text.Reveal()
}

func TestRotateToken_DuringOverlap_BothValid(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	old, oldText := d.readOnlyToken(t, 90*24*time.Hour)
	d.now = epoch.Add(80 * 24 * time.Hour)
	rotated := d.now
	r, err := d.RotateToken(t.Context(), old.ID, 24*time.Hour)
	check(t, err)
	expires, end := rotated.Add(90*24*time.Hour), rotated.Add(24*time.Hour)
	want := account.Token{ID: r.New.ID, AccountID: old.AccountID, Account: "shop", Name: "books", Scopes: old.Scopes,
		Hash: r.New.Hash, CreatedAt: rotated, ExpiresAt: &expires, Seal: r.New.Seal}
	if diff := cmp.Diff(want, r.New); diff != "" {
		t.Error(diff)
	}
	old.ExpiresAt, old.ReplacedBy, old.Seal = &end, r.New.ID, r.Old.Seal
	if diff := cmp.Diff(old, r.Old); diff != "" {
		t.Error(diff)
	}
	stored, err := d.store.Tokens(t.Context())
	check(t, err)
	if diff := cmp.Diff([]account.Token{old, want}, stored); diff != "" {
		t.Error(diff)
	}
	text := r.Text.Reveal()
	d.accepts(t, old, oldText, 1)
	d.accepts(t, r.New, text, 1)
	d.now = end.Add(-1)
	d.accepts(t, old, oldText, 1)
	d.now = end
	d.rejects(t, oldText, 0)
	d.accepts(t, r.New, text, 1)
}

// Processes that have cached the old token reject it within seconds.
func TestRotateToken_NoOverlap_OldRejectedWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	old, text := d.token(t, 0)
	d.accepts(t, old, text, 1)
	_, err := d.RotateToken(t.Context(), old.ID, 0)
	check(t, err)
	d.now = epoch.Add(4 * time.Second)
	d.rejects(t, text, 1)
}

// A rotation must not extend the life of the old token.
func TestRotateToken_LongOverlap_KeepsOldExpiry(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	old, text := d.token(t, time.Hour)
	r, err := d.RotateToken(t.Context(), old.ID, 24*time.Hour)
	check(t, err)
	if !r.Old.ExpiresAt.Equal(epoch.Add(time.Hour)) {
		t.Errorf("expires at %v", r.Old.ExpiresAt)
	}
	d.now = epoch.Add(time.Hour)
	d.rejects(t, text, 1)
}

func TestRotateToken_NoExpiry(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	old, _ := d.token(t, 0)
	r, err := d.RotateToken(t.Context(), old.ID, time.Hour)
	check(t, err)
	if r.New.ExpiresAt != nil || r.New.Scopes != account.AllScopes || !r.Old.ExpiresAt.Equal(epoch.Add(time.Hour)) {
		t.Errorf("%+v", r)
	}
	// The next token gets the original time to live, not the overlap.
	d.now = epoch.Add(time.Minute)
	next, err := d.RotateToken(t.Context(), r.New.ID, time.Hour)
	check(t, err)
	if next.New.ExpiresAt != nil {
		t.Errorf("expires at %v", next.New.ExpiresAt)
	}
}

func TestRotateToken_Invalid_ReturnsError(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	rotate := func(id uuid.UUID) error {
		t.Helper()
		r, err := d.RotateToken(t.Context(), id, time.Hour)
		if err != nil && r.Text != "" {
			t.Error("a text despite the error")
		}
		return err
	}
	wantError(t, rotate(uuid.New()), card.ErrNoRow)
	revoked, _ := d.token(t, 0)
	check(t, d.RevokeToken(t.Context(), revoked.ID))
	wantError(t, rotate(revoked.ID), account.ErrTokenEnded)
	expired, _ := d.token(t, time.Minute)
	old, _ := d.token(t, 0)
	d.now = epoch.Add(time.Minute)
	wantError(t, rotate(expired.ID), account.ErrTokenEnded)
	r, err := d.RotateToken(t.Context(), old.ID, time.Hour)
	check(t, err)
	var before *account.RotatedError
	if err := rotate(old.ID); !errors.As(err, &before) || before.To != r.New.ID {
		t.Errorf("rotated twice: %v", err)
	}
	if _, err := d.RotateToken(t.Context(), r.New.ID, -1); err == nil {
		t.Error("a negative overlap is allowed")
	}
	if all, err := d.store.Tokens(t.Context()); err != nil || len(all) != 4 {
		t.Errorf("%d tokens, error %v", len(all), err)
	}
}

// The caller of a rotation need not know the token's mode: the new token has
// the same one.
func TestRotateToken_KeepsMode(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	test, live := d.with(t, d.vault, card.TestMode), d.with(t, d.vault, card.LiveMode)
	for made, rotating := range map[*account.Service]*account.Service{live: test, test: live} {
		old, first, err := made.CreateToken(t.Context(), "shop", account.TokenRequest{Scopes: account.AllScopes})
		check(t, err)
		prefix := first.Reveal()[:len("cm_live_")]
		for range 2 { // also for the successor
			r, err := rotating.RotateToken(t.Context(), old.ID, time.Hour)
			check(t, err)
			if !strings.HasPrefix(r.Text.Reveal(), prefix) {
				t.Errorf("%s... was rotated to %s...", prefix, r.Text.Reveal()[:len(prefix)])
			}
			if _, err := made.Authenticate(t.Context(), r.Text.Reveal()); err != nil {
				t.Errorf("%s...: %v", prefix, err)
			}
			old = r.New
		}
	}
}

// Of two concurrent rotations one creates a token, and the other returns a
// RotatedError.
func TestRotateToken_Concurrent_OneSuccessor(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	old, _ := d.token(t, 0)
	var quicker account.Rotation
	d.store.rotating = func() {
		d.store.rotating = nil
		var err error
		quicker, err = d.RotateToken(t.Context(), old.ID, time.Hour)
		check(t, err)
	}
	_, err := d.RotateToken(t.Context(), old.ID, 9*time.Hour)
	var before *account.RotatedError
	if !errors.As(err, &before) || before.To != quicker.New.ID {
		t.Errorf("error %v", err)
	}
	all, err := d.store.Tokens(t.Context())
	check(t, err)
	if len(all) != 2 || !all[0].ExpiresAt.Equal(epoch.Add(time.Hour)) {
		t.Errorf("%+v", all)
	}

	revoked, _ := d.token(t, 0)
	d.store.rotating = func() { check(t, d.RevokeToken(t.Context(), revoked.ID)) }
	_, err = d.RotateToken(t.Context(), revoked.ID, time.Hour)
	wantError(t, err, account.ErrTokenEnded)
}

func TestRotateToken_Failure_ChangesNothing(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	old, text := d.token(t, 0)
	d.store.fails = "RotateToken"
	_, err := d.RotateToken(t.Context(), old.ID, 0)
	wantError(t, err, card.ErrUnavailable)
	d.store.fails = ""
	for _, purpose := range []string{"token", "seal"} {
		_, err = d.with(t, failingVault{d.vault, purpose}, "").RotateToken(t.Context(), old.ID, 0)
		wantError(t, err, errVault)
	}
	d.accepts(t, old, text, 1)
	if all, err := d.store.Tokens(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d tokens, error %v", len(all), err)
	}
}

func TestCreateToken_ExpiresAt(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	end := epoch.Add(time.Hour)
	token, text, err := d.CreateToken(t.Context(), "shop",
		account.TokenRequest{Scopes: account.ScopesOf(account.CardsCreate), ExpiresAt: &end})
	check(t, err)
	d.now = end.Add(-1)
	d.accepts(t, token, text.Reveal(), 1)
	d.now = end
	d.rejects(t, text.Reveal(), 0)
	for name, r := range map[string]account.TokenRequest{
		"already expired": {Scopes: account.AllScopes, ExpiresAt: &end}, "without a scope": {},
		"with a negative time": {Scopes: account.AllScopes, TTL: -1},
	} {
		if _, text, err := d.CreateToken(t.Context(), "shop", r); err == nil || text != "" {
			t.Errorf("%s: no error", name)
		}
	}
}
