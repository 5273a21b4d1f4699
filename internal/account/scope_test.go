package account_test

import (
	"errors"
	"testing"

	"github.com/cardmint/cardmint/internal/account"
)

func TestScopes_RoundTrip(t *testing.T) {
	t.Parallel()
	known := account.KnownScopes()
	for set := range account.Scopes(1 << len(known)) {
		if got := account.ReadScopes(set.String()); got != set {
			t.Errorf("%q is read as %q", set, got)
		}
		if set == 0 {
			continue
		}
		if got, err := account.ParseScopes(set.String()); err != nil || got != set {
			t.Errorf("%q is parsed as %q, error %v", set, got, err)
		}
		for i, s := range known {
			if set.Has(s) != (set&(1<<i) != 0) {
				t.Errorf("%q has %s: %v", set, s, set.Has(s))
			}
		}
	}
	got, err := account.ParseScopes("events:read, cards:read,events:read")
	if err != nil || got != account.ScopesOf(account.CardsRead, account.EventsRead) ||
		got.String() != "cards:read,events:read" {
		t.Errorf("parsed %q, error %v", got, err)
	}
}

// AllScopes is more than every current scope: later versions may add some.
func TestScopes_All_IncludesLaterScopes(t *testing.T) {
	t.Parallel()
	each := account.ScopesOf(account.KnownScopes()...)
	if each == account.AllScopes || each.String() == "all" || account.AllScopes.String() != "all" ||
		account.ReadScopes("all") != account.AllScopes {
		t.Errorf("each %q, all %q", each, account.AllScopes)
	}
	for _, s := range account.KnownScopes() {
		if !account.AllScopes.Has(s) || !each.Has(s) || account.Scopes(0).Has(s) {
			t.Errorf("%s", s)
		}
	}
	if account.AllScopes.Has("cards:burn") || account.AllScopes.Has("") || account.AllScopes.Has("none") {
		t.Error("the set contains unknown scopes")
	}
}

// Scopes of later versions grant nothing in this version.
func TestReadScopes_UnknownScope_Ignored(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]account.Scopes{
		"": 0, "cards:burn": 0, "cards:read,cards:burn": account.ScopesOf(account.CardsRead),
		"all,cards:read": account.ScopesOf(account.CardsRead), "All": 0,
	} {
		if got := account.ReadScopes(text); got != want {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}

func TestParseScopes_Typo_SuggestsScope(t *testing.T) {
	t.Parallel()
	for text, near := range map[string]account.Scope{
		"card:read": account.CardsRead, "cards.read": account.CardsRead, "Cards:Read": account.CardsRead,
		"cards:create,cards:raed": account.CardsRead,
		"cards":                   account.CardsRead, "cards:crea": account.CardsCreate, "cards:creat": account.CardsCreate,
		"credential:reveal": account.CredentialsReveal, "credentials": account.CredentialsReveal,
		"webhooks": account.WebhooksManage, "webhooks:read": account.WebhooksManage, "events": account.EventsRead,
		"event:reads": account.EventsRead,
		"":            "", "x": "", "none": "", "admin": "", "cards:read,": "", ",cards:read": "", "all,cards:read": "",
		"cards:read cards:create": "",
	} {
		_, err := account.ParseScopes(text)
		var unknown *account.UnknownScopeError
		if !errors.As(err, &unknown) || unknown.Near != near {
			t.Errorf("%q: %v", text, err)
		}
	}
}
