package account_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
)

func TestCheckKeys_OtherKeys_ReturnsError(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	check(t, d.CheckKeys(t.Context())) // the first keys are the right ones
	other := d.with(t, vaulttest.New(t), "")
	wantError(t, other.CheckKeys(t.Context()), card.ErrWrongKeys)
	wantError(t, other.CheckKeys(t.Context()), card.ErrWrongKeys)
	check(t, d.CheckKeys(t.Context()))
}

func TestCheckKeys_StoreFails_IsNotWrongKeys(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	wantError(t, d.with(t, failingVault{d.vault, "key check"}, "").CheckKeys(t.Context()), errVault)
	d.store.fails = "Setting"
	wantError(t, d.CheckKeys(t.Context()), card.ErrUnavailable)
	d.store.fails = ""
	check(t, d.CheckKeys(t.Context()))
}

func TestCreateAccount_Names(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for _, name := range []string{"a", "two words", strings.Repeat("a", 100), strings.Repeat("ü", 100)} {
		made, err := d.CreateAccount(t.Context(), name)
		check(t, err)
		stored, err := d.store.AccountByName(t.Context(), name)
		check(t, err)
		want := account.Account{ID: made.ID, Name: name, CreatedAt: card.TimeOf(made.ID)}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want, stored); diff != "" {
			t.Error(diff)
		}
	}
	for _, name := range []string{"", " ", strings.Repeat("a", 101), strings.Repeat("ü", 101), " shop", "shop ",
		"\tshop", "shop\n", "sh\nop", "sh\x1b[2Kop", "sh\u009bop", "sh\u202eop", "sh\x00op", "sh\xffop"} {
		made, err := d.CreateAccount(t.Context(), name)
		if err == nil || made != (account.Account{}) {
			t.Errorf("%q: %+v, error %v", name, made, err)
		}
	}
	if all, err := d.store.Accounts(t.Context()); err != nil || len(all) != 5 {
		t.Errorf("%d accounts, error %v", len(all), err)
	}
}

func TestCreateAccount_NameTaken_ReturnsError(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	_, err := d.CreateAccount(t.Context(), "shop")
	wantError(t, err, card.ErrDuplicate)
	d.store.fails = "InsertAccount"
	_, err = d.CreateAccount(t.Context(), "another")
	wantError(t, err, card.ErrUnavailable)
}

func TestCreateToken_TextIsNotStored(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, text := d.token(t, 90*time.Minute)
	owner, err := d.store.AccountByName(t.Context(), "shop")
	check(t, err)
	expires := epoch.Add(90 * time.Minute)
	want := []account.Token{
		{ID: made.ID, AccountID: owner.ID, Account: "shop", Name: "checkout", Hash: made.Hash, Scopes: account.AllScopes,
			CreatedAt: epoch, ExpiresAt: &expires, Seal: made.Seal}}
	stored, err := d.store.Tokens(t.Context())
	check(t, err)
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[0], made); diff != "" {
		t.Error(diff)
	}
	for name, kept := range map[string][]byte{"hash": made.Hash, "seal": made.Seal} {
		if len(kept) == 0 || strings.Contains(string(kept), text[len("cm_test_"):]) {
			t.Errorf("the %s is empty, or contains the text", name)
		}
	}
}

// A lifetime that was computed wrong must not give a token that lives for ever.
func TestCreateToken_NegativeTTL_ReturnsError(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for _, ttl := range []time.Duration{-1, -720 * time.Hour} {
		if token, text, err := d.CreateToken(t.Context(), "shop",
			account.TokenRequest{Scopes: account.AllScopes, TTL: ttl}); err == nil || text != "" {
			t.Errorf("ttl %v: made a token that expires at %v", ttl, token.ExpiresAt)
		}
	}
	if all, err := d.store.Tokens(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%d tokens, error %v", len(all), err)
	}
}

// A token that the caller never got must not exist.
func TestCreateToken_Failure_StoresNothing(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	create := func(s *account.Service, of string, want error) {
		t.Helper()
		_, _, err := s.CreateToken(t.Context(), of, account.TokenRequest{Scopes: account.AllScopes})
		wantError(t, err, want)
	}
	_, _, err := d.CreateToken(t.Context(), "nobody", account.TokenRequest{Scopes: account.AllScopes})
	wantError(t, err, card.ErrNoRow)
	if !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("the error does not name the account: %v", err)
	}
	for _, purpose := range []string{"token", "seal"} {
		create(d.with(t, failingVault{d.vault, purpose}, ""), "shop", errVault)
	}
	for _, method := range []string{"AccountByName", "InsertToken"} {
		d.store.fails = method
		create(d.Service, "shop", card.ErrUnavailable)
	}
	if all, err := d.store.Tokens(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%d tokens, error %v", len(all), err)
	}
}

func TestRevokeToken_Twice_KeepsFirstTime(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	token, _ := d.token(t, 0)
	d.now = epoch.Add(time.Minute)
	check(t, d.RevokeToken(t.Context(), token.ID))
	d.now = epoch.Add(time.Hour)
	check(t, d.RevokeToken(t.Context(), token.ID))
	all, err := d.store.Tokens(t.Context())
	check(t, err)
	if len(all) != 1 || all[0].RevokedAt == nil || !all[0].RevokedAt.Equal(epoch.Add(time.Minute)) {
		t.Errorf("%+v", all)
	}
	wantError(t, d.RevokeToken(t.Context(), uuid.New()), card.ErrNoRow)
	other, _ := d.token(t, 0)
	d.store.fails = "RevokeToken"
	wantError(t, d.RevokeToken(t.Context(), other.ID), card.ErrUnavailable)
}

func TestDevToken_Restart_SameToken(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	first, err := d.DevToken(t.Context())
	check(t, err)
	again, err := d.with(t, d.vault, "").DevToken(t.Context()) // of the next process
	check(t, err)
	if first.Reveal() != again.Reveal() {
		t.Errorf("%s, then %s", first.Reveal(), again.Reveal())
	}
	all, err := d.store.Tokens(t.Context())
	check(t, err)
	if len(all) != 1 || all[0].Account != "dev" || all[0].Name != "dev" || all[0].ExpiresAt != nil {
		t.Fatalf("tokens %+v", all)
	}
	d.accepts(t, all[0], first.Reveal(), 1)
	other, err := d.with(t, vaulttest.New(t), "").DevToken(t.Context())
	check(t, err)
	if other.Reveal() == first.Reveal() {
		t.Error("other keys make the same token")
	}
}

func TestDevToken_AccountExists_IsUsed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, err := d.CreateAccount(t.Context(), "dev")
	check(t, err)
	text, err := d.DevToken(t.Context())
	check(t, err)
	who, err := d.Authenticate(t.Context(), text.Reveal())
	if err != nil || who.AccountID != made.ID {
		t.Errorf("%+v, error %v, want account %s", who, err, made.ID)
	}
}

func TestDevToken_Failure_NextStartSucceeds(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for _, method := range []string{"AccountByName", "InsertAccount", "TokenByHash", "InsertToken"} {
		d.store.fails = method
		_, err := d.DevToken(t.Context())
		wantError(t, err, card.ErrUnavailable)
	}
	d.store.fails = ""
	for _, label := range []string{"dev token", "token"} {
		_, err := d.with(t, failingVault{d.vault, label}, "").DevToken(t.Context())
		wantError(t, err, errVault)
	}
	text, err := d.DevToken(t.Context())
	check(t, err)
	if _, err := d.Authenticate(t.Context(), text.Reveal()); err != nil {
		t.Error(err)
	}
}
