package acceptance_test

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/vault"
)

// removeSeals deletes the data that earlier versions do not store.
func (p *program) removeSeals(t testing.TB) {
	t.Helper()
	v, err := vault.Open(p.setting("CARDMINT_KEYS"))
	must(t, err)
	check, err := v.Digest("key check", nil)
	must(t, err)
	db := rig.OpenSQL(t, p.setting("CARDMINT_DATABASE_URL"))
	for _, statement := range []string{
		"UPDATE settings SET value = '" + hex.EncodeToString(check) + "' WHERE name = 'key_check'",
		"UPDATE tokens SET seal = NULL", "UPDATE schema_compatibility SET oldest = 6",
	} {
		_, err := db.Exec(statement)
		must(t, err)
	}
}

// useToken uses a token, and returns the status of the response.
func (s *server) useToken(t *testing.T, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/cards?limit=1", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	must(t, err)
	must(t, res.Body.Close())
	return res.StatusCode
}

func TestToken_RowChangedInDatabase_RefusedAndReported(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		p := newProgram(t, url)
		p.account(t)
		p.must(t, "account", "create", "mallory")
		text := p.must(t, "token", "create", "mallory", "--scopes", "cards:read")
		p.must(t, "reconcile")
		_, err := rig.OpenSQL(t,
			url).Exec("UPDATE tokens SET account_id = (SELECT id FROM accounts WHERE name = 'shop'), scopes = NULL WHERE scopes IS NOT NULL")
		must(t, err)
		var changed struct{ ID string }
		for _, row := range regexp.MustCompile(`(?m)^(\S{36}).*$`).FindAllStringSubmatch(p.must(t, "token", "list"), -1) {
			changed.ID = row[1] // the newest
		}

		stdout, stderr, code := p.run("reconcile", "--json")
		var books struct{ Doubts []struct{ ID, Text string } }
		must(t, json.Unmarshal([]byte(stdout), &books))
		if code != 1 || len(books.Doubts) != 1 || books.Doubts[0].ID != changed.ID ||
			!strings.Contains(books.Doubts[0].Text, "changed without the keys") {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
		_, stderr, code = p.run("token", "rotate", changed.ID)
		if code != 1 || !strings.Contains(stderr, "was changed without the keys") ||
			!strings.Contains(stderr, "hint: revoke it") {
			t.Errorf("exit code %d, %s", code, stderr)
		}

		s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--metrics-listen", "127.0.0.1:0")
		if status := s.useToken(t, text); status != http.StatusUnauthorized {
			t.Errorf("status %d", status)
		}
		s.awaitOutput(t, 10*time.Second, "the token's row was changed without the keys")
		wantOutput(t, s.Output(), "token="+changed.ID)
		if n := metricValue(s.scrape(t), "cardmint_tokens_changed_total"); n != "1" {
			t.Errorf("cardmint_tokens_changed_total is %q", n)
		}
		p.must(t, "token", "revoke", changed.ID)
		p.must(t, "reconcile")
		s.stop(t)
	})
}

func TestTokenSeal_TokensOfEarlierRelease_AreSealed(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		p := newProgram(t, url)
		token := p.account(t)
		p.removeSeals(t)
		later := p.must(t, "token", "create", "shop", "--name", "later", "--mode", "live")
		s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
		wantOutput(t, s.Output(), "run 'cardmint token seal'")
		if status := s.useToken(t, token); status != http.StatusOK {
			t.Errorf("token of an earlier version: status %d", status)
		}
		p.must(t, "reconcile")

		stdout, stderr, code := p.run("token", "seal", "--json")
		var sealed []struct{ Account, Name string }
		must(t, json.Unmarshal([]byte(stdout), &sealed))
		if code != 0 || len(sealed) != 2 || sealed[1].Name != "later" ||
			!strings.Contains(stderr, "action=tokens_sealed actor=operator:") || !strings.Contains(stderr, " tokens=2\n") {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
		stdout, stderr, code = p.run("token", "seal")
		if code != 1 || stdout != "" || !strings.Contains(stderr, "the tokens were sealed before") ||
			!strings.Contains(stderr, "\nhint: ") {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
		p.must(t, "reconcile")
		if text := p.must(t, "token", "rotate", p.tokenRows(t, "later")[0]["ID"]); !strings.HasPrefix(text, "cm_live_") ||
			text == later {
			t.Errorf("the live token was replaced by %.8s", text)
		}
		s.stop(t)
		s = p.serve(t, "serve", "--simulated", "--rate", "monero=150")
		if strings.Contains(s.Output(), "token seal") {
			t.Errorf("the log still mentions token seal:\n%s", s.Output())
		}
		if status := s.useToken(t, token); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		s.stop(t)
	})
}
