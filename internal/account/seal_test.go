package account_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

// exec changes the database without the keys.
func (d *fixture) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	done, err := rig.OpenSQL(t, d.url).Exec(statement, args...)
	check(t, err)
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s: %d rows, error %v", statement, n, err)
	}
}

// wantChanged checks which tokens ChangedTokens returns.
func (d *fixture) wantChanged(t *testing.T, ids ...uuid.UUID) {
	t.Helper()
	found, err := d.ChangedTokens(t.Context())
	check(t, err)
	var want []account.ChangedToken
	for _, id := range ids {
		want = append(want, account.ChangedToken{ID: id, Err: account.ErrTokenChanged})
	}
	if diff := cmp.Diff(want, found, cmp.Comparer(func(a, b error) bool { return a.Error() == b.Error() })); diff != "" {
		t.Error(diff)
	}
}

// Write access to the database without the keys does not let an attacker extend
// a token. mine is the attacker's token, and theirs the victim's.
func TestAuthenticate_RowChangedWithoutKeys_Rejected(t *testing.T) {
	const (
		deleteMine = "DELETE FROM tokens WHERE id = $1"
		insertMine = `INSERT INTO tokens (id, account_id, name, hash, created_at, seal)
			SELECT '019aa1c9-f868-7cef-8e4e-9b1c97fb1d88', v.account_id, '', m.hash, v.created_at, `
	)
	for name, attack := range map[string]string{
		"account":            "UPDATE tokens SET account_id = (SELECT account_id FROM tokens WHERE id = $2) WHERE id = $1",
		"account and seal":   "UPDATE tokens SET (account_id, seal) = (SELECT account_id, seal FROM tokens WHERE id = $2) WHERE id = $1",
		"everything but id":  "UPDATE tokens SET (account_id, scopes, created_at, expires_at, seal) = (SELECT account_id, scopes, created_at, expires_at, seal FROM tokens WHERE id = $2) WHERE id = $1",
		"all scopes":         "UPDATE tokens SET scopes = NULL WHERE id = $1",
		"all scopes by name": "UPDATE tokens SET scopes = 'all' WHERE id = $1",
		"another scope":      "UPDATE tokens SET scopes = 'credentials:reveal' WHERE id = $1",
		"no expiry":          "UPDATE tokens SET expires_at = NULL WHERE id = $1",
		"later expiry":       "UPDATE tokens SET expires_at = expires_at + 1 WHERE id = $1",
		// a rotation would give the new token the same time to live
		"age":               "UPDATE tokens SET created_at = 0 WHERE id = $1",
		"no seal":           "UPDATE tokens SET seal = NULL WHERE id = $1",
		"empty seal":        "UPDATE tokens SET seal = x'' WHERE id = $1",
		"seal of another":   "UPDATE tokens SET seal = (SELECT seal FROM tokens WHERE id = $2) WHERE id = $1",
		"new row":           insertMine + "NULL FROM (SELECT * FROM tokens WHERE id = $2) v, (SELECT $3 AS hash) m",
		"new row, old seal": insertMine + "v.seal FROM (SELECT * FROM tokens WHERE id = $2) v, (SELECT $3 AS hash) m",
		"hash":              "UPDATE tokens SET hash = $3 WHERE id = $2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, changed := newFixture(t), 0
			d.Service = d.configured(t, account.Config{Changed: func() { changed++ }})
			_, err := d.CreateAccount(t.Context(), "victim")
			check(t, err)
			theirs, _, err := d.CreateToken(t.Context(), "victim", account.TokenRequest{Scopes: account.AllScopes})
			check(t, err)
			mine, text := d.readOnlyToken(t, time.Hour)
			d.accepts(t, mine, text, 1)
			row := mine.ID
			switch name {
			case "hash", "new row", "new row, old seal":
				d.exec(t, deleteMine, mine.ID)
				if row = uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"); name == "hash" {
					row = theirs.ID
				}
			}
			d.exec(t, attack, []any{mine.ID, theirs.ID, mine.Hash}...)
			d.now = d.now.Add(2 * time.Second) // when the cache expires
			d.rejects(t, text, 1)
			d.rejects(t, text, 0)
			if d.Recognizes(text) {
				t.Error("the token is still recognized")
			}
			if changed != 1 {
				t.Errorf("reported %d times", changed)
			}
			d.wantChanged(t, row)
			_, err = d.RotateToken(t.Context(), row, 0)
			wantError(t, err, account.ErrTokenChanged)
			check(t, d.RevokeToken(t.Context(), row)) // makes the row valid
			d.wantChanged(t)
			d.now = d.now.Add(3 * time.Second)
			d.rejects(t, text, 1)
		})
	}
}

func TestAuthenticate_EndUndoneWithoutKeys_Rejected(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	revoked, text := d.token(t, 0)
	rotated, text2 := d.token(t, 0)
	check(t, d.RevokeToken(t.Context(), revoked.ID))
	_, err := d.RotateToken(t.Context(), rotated.ID, 0)
	check(t, err)
	d.exec(t, "UPDATE tokens SET revoked_at = NULL WHERE id = $1", revoked.ID)
	d.exec(t, "UPDATE tokens SET replaced_by = NULL, expires_at = NULL WHERE id = $1", rotated.ID)
	d.rejects(t, text, 1)
	d.rejects(t, text2, 1)
	d.wantChanged(t, revoked.ID, rotated.ID)
}

// In an emergency a token can be revoked directly in the database. A later
// revocation by the program makes its row valid again.
func TestRevokeToken_AfterRevocationInDatabase(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	d.exec(t, "UPDATE tokens SET revoked_at = 1 WHERE id = $1", token.ID)
	d.rejects(t, text, 1)
	check(t, d.RevokeToken(t.Context(), token.ID))
	d.wantChanged(t)
	d.now = d.now.Add(3 * time.Second)
	d.rejects(t, text, 1)
}

// before replaces the rows by rows of a version without seals.
func (d *fixture) before(t *testing.T) {
	t.Helper()
	digest, err := d.vault.Digest("key check", nil)
	check(t, err)
	_, err = d.store.Setting(t.Context(), "key_check", hex.EncodeToString(digest))
	check(t, err)
	check(t, d.CheckKeys(t.Context()))
	if d.Sealed() {
		t.Fatal("the tokens of an old database count as sealed")
	}
}

func TestSealTokens_DatabaseOfEarlierVersion(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.before(t)
	live := d.with(t, d.vault, card.LiveMode)
	check(t, live.CheckKeys(t.Context()))
	old, text := d.readOnlyToken(t, time.Hour)
	ofLive, liveText, err := live.CreateToken(t.Context(), "shop", account.TokenRequest{Scopes: account.AllScopes})
	check(t, err)
	if old.Seal != nil || ofLive.Seal != nil {
		t.Error("a token has a seal that earlier versions would not update")
	}
	d.accepts(t, old, text, 1)
	d.wantChanged(t)
	r, err := d.RotateToken(t.Context(), old.ID, time.Hour)
	check(t, err)

	sealing := d.with(t, d.vault, "")
	sealed, err := sealing.SealTokens(t.Context())
	check(t, err)
	if len(sealed) != 3 {
		t.Errorf("sealed %+v", sealed)
	}
	_, err = sealing.SealTokens(t.Context())
	wantError(t, err, account.ErrSealed)
	d.now = d.now.Add(2 * time.Second)
	d.accepts(t, old, text, 1)
	d.accepts(t, r.New, r.Text.Reveal(), 1)
	if !d.Sealed() {
		t.Error("a running process has not noticed")
	}
	d.wantChanged(t)
	next, err := sealing.RotateToken(t.Context(), ofLive.ID, time.Hour) // by a service of the other mode
	check(t, err)
	for _, text := range []card.Secret{liveText, next.Text} {
		if _, err := live.Authenticate(t.Context(), text.Reveal()); err != nil {
			t.Errorf("a live token is rejected: %v", err)
		}
	}
}

// The setting that allows an earlier version's tokens to be sealed can't be
// restored without the keys.
func TestSealTokens_MarkerReset_SealsNothing(t *testing.T) {
	for name, reset := range map[string]string{
		"deleted": "DELETE FROM settings WHERE name = 'key_check'",
		"kept":    "UPDATE settings SET value = value WHERE name = 'key_check'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.before(t)
			token, text := d.readOnlyToken(t, 0)
			_, err := d.SealTokens(t.Context())
			check(t, err)
			d.exec(t, "UPDATE tokens SET scopes = NULL, seal = NULL")
			d.exec(t, reset)
			started := d.with(t, d.vault, "")
			check(t, started.CheckKeys(t.Context()))
			_, err = started.SealTokens(t.Context())
			wantError(t, err, account.ErrSealed)
			_, err = started.Authenticate(t.Context(), text)
			wantError(t, err, card.ErrUnauthorized)
			d.wantChanged(t, token.ID)
		})
	}
}

// A process that has verified one seal rejects rows without a seal.
func TestAuthenticate_NoSealAmongSealed_Rejected(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.before(t)
	one, oneText := d.token(t, 0)
	_, twoText := d.token(t, 0)
	_, err := d.with(t, d.vault, "").SealTokens(t.Context())
	check(t, err)
	d.accepts(t, one, oneText, 1)
	d.exec(t, "UPDATE tokens SET seal = NULL WHERE id <> $1", one.ID)
	d.rejects(t, twoText, 1)
}

// If only another process has the key, the token is unavailable, not invalid.
func TestAuthenticate_SealUnderMissingKey_Unavailable(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, text := d.token(t, 0)
	d.exec(t, "UPDATE tokens SET seal = $1 WHERE id = $2", append(card.KeyID(7).Prefix(), make([]byte, 40)...), token.ID)
	_, err := d.Authenticate(t.Context(), text)
	wantError(t, err, card.ErrUnavailable)
	d.vault.MarkNonexistent([]card.KeyID{7}) // as the keys loop determines
	d.rejects(t, text, 1)
	check(t, d.RevokeToken(t.Context(), token.ID))
	d.wantChanged(t)
}
