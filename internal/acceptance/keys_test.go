package acceptance_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/vault"
)

// setting returns the value of an environment variable of the program.
func (p *program) setting(name string) string {
	for i := len(p.env) - 1; i >= 0; i-- {
		if value, is := strings.CutPrefix(p.env[i], name+"="); is {
			return value
		}
	}
	return ""
}

// awaitCommand repeats a command until its output matches a pattern.
func (p *program) awaitCommand(t *testing.T, pattern string, args ...string) {
	t.Helper()
	wanted, last := regexp.MustCompile(pattern), ""
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		stdout, stderr, _ := p.run(args...)
		if last = stdout + stderr; wanted.MatchString(last) {
			return
		}
	}
	t.Fatalf("%v never printed %s, but:\n%s", args, pattern, last)
}

// copyCard creates n copies of an issued card, each with its own credentials,
// and returns their ids.
func (p *program) copyCard(t *testing.T, of uuid.UUID, n int) []uuid.UUID {
	t.Helper()
	db := rig.OpenSQL(t, strings.Split(p.setting("CARDMINT_DATABASE_URL"), "&fallback")[0])
	v, err := vault.Open(p.setting("CARDMINT_KEYS"))
	must(t, err)
	var account uuid.UUID
	must(t, db.QueryRow("SELECT account_id FROM cards WHERE uuid = $1", of).Scan(&account))
	tx, err := db.Begin()
	must(t, err)
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
		sealed, err := v.SealCredentials(ids[i], account,
			card.Credentials{CardNumber: card.Secret(ids[i].String()), ExpirationDate: "11/29", SecurityCode: "123",
				URL: "https://x.invalid", URLPassword: "p"})
		must(t, err)
		_, err = tx.Exec(`INSERT INTO cards (uuid, account_id, created_at, usd_cents, currency, amount, address, rate, rate_at, rate_source, expires_at, confirmations_required, status)
			SELECT $1, account_id, created_at, usd_cents, currency, amount, $2, rate, rate_at, rate_source, expires_at, confirmations_required, status FROM cards WHERE uuid = $3`,
			ids[i], "copy "+ids[i].String(), of)
		must(t, err)
		_, err = tx.Exec(
			"INSERT INTO credentials (card_uuid, card_number, expiration_date, security_code, url, url_password) VALUES ($1, $2, $3, $4, $5, $6)", ids[i],
			sealed.CardNumber, sealed.ExpirationDate, sealed.SecurityCode, sealed.URL, sealed.URLPassword)
		must(t, err)
	}
	must(t, tx.Commit())
	return ids
}

// Keys are rotated with the commands of an operator while two processes run.
// One of them is killed while it re-encrypts.
func TestKeys_WorkerKilledDuringRotation_CardsStayReadable(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits for processes that run and die, which takes 20 s")
	}
	t.Parallel()
	for name, database := range map[string]func() string{
		"sqlite": func() string { return "" }, "postgres": func() string { return rig.Postgres(t) }} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t, database())
			token := p.account(t)
			worker := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--role", "worker")
			api := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--role", "api")
			issued := api.order(t, token, "1")
			issued, err := newClient(t, api.url, token).WaitForCard(t.Context(), issued.UUID)
			must(t, err)
			ids := append(p.copyCard(t, issued.UUID, 3000), issued.UUID)
			readable := func(url string) {
				t.Helper()
				n := 0
				for c, err := range newClient(t, url, token).ListCards(t.Context(), client.ListCardsOptions{}) {
					must(t, err)
					if c.Credentials.CardNumber != "" &&
						(c.UUID == issued.UUID) == (c.Credentials.CardNumber == issued.Credentials.CardNumber) {
						n++
					}
				}
				if n != len(ids) {
					t.Errorf("%d of %d cards are readable", n, len(ids))
				}
			}
			p.awaitCommand(t, `(?m)^([0-9a-f]{8}) .* primary +3002 +2 of 2$`, "keys", "list")
			old := regexp.MustCompile(`(?m)^([0-9a-f]{8}) .* primary `).FindStringSubmatch(p.must(t, "keys", "list"))[1]
			added := regexp.MustCompile(`added key ([0-9a-f]{8})`).FindStringSubmatch(p.must(t, "keys", "add"))[1]
			p.awaitCommand(t, `every process has key `+added+`: cardmint keys promote `+added, "keys", "list")
			if _, stderr, code := p.run("keys", "retire", old); code != 1 || !strings.Contains(stderr, "hint: ") {
				t.Errorf("retire of the primary key: exit code %d, %s", code, stderr)
			}
			p.must(t, "keys", "promote", added)
			if _, stderr, code := p.run("keys", "retire", old); code != 1 || !strings.Contains(stderr, "hint: ") {
				t.Errorf("retire of a key in use: exit code %d, %s", code, stderr)
			}

			db := rig.OpenSQL(t, p.setting("CARDMINT_DATABASE_URL"))
			key, err := card.ParseKeyID(old)
			must(t, err)
			left := func() (n int) {
				must(t, db.QueryRow("SELECT COUNT(*) FROM credentials WHERE SUBSTR(card_number, 1, 5) = $1", key.Prefix()).Scan(&n))
				return n
			}
			for until := time.Now().Add(30 * time.Second); left() == len(ids) && time.Now().Before(until); {
				time.Sleep(time.Millisecond)
			}
			worker.Kill()
			t.Logf("killed with %d of %d cards left", left(), len(ids))
			readable(api.url)
			_, err = db.Exec("UPDATE key_holders SET seen_at = seen_at - 31000 WHERE process LIKE $1",
				fmt.Sprintf("%%/%d#%%", worker.PID()))
			must(t, err)

			worker = p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--role", "worker")
			p.awaitCommand(t, `nothing is encrypted with key `+old+` any more: cardmint keys retire `+old, "keys", "list")
			readable(api.url)
			p.awaitCommand(t, `(?m)^\S+#\w+ +`+added+` .*\n\S+#\w+ +`+added+` `, "keys", "list") // both encrypt with the new key
			if _, stderr, code := p.run("keys", "retire", old); code != 1 ||
				!strings.Contains(stderr, "hint: run this command again in 6 minutes at the latest") {
				t.Errorf("retire right after a process started: exit code %d, %s", code, stderr)
			}
			_, err = db.Exec("UPDATE key_holders SET primary_since = primary_since - 361000")
			must(t, err)
			p.awaitCommand(t, `retired key `+old, "keys", "retire", old)
			readable(api.url)
			p.awaitCommand(t, `(?m)^`+added+` .* primary +3002 +2 of 2$`, "keys", "list")
			if n := strings.Count(p.must(t, "keys", "list"), " retired "); n != 1 {
				t.Errorf("%d retired keys", n)
			}
			wantOutput(t, p.must(t, "card", "show", issued.UUID.String()), "generated")
			worker.stop(t)
			api.stop(t)
			if list := p.must(t, "keys", "list"); !strings.Contains(list, "0 of 0") {
				t.Errorf("stopped processes are listed:\n%s", list)
			}
		})
	}
}

// A host that was down during a rotation restarts with a key file whose primary
// key was retired since.
func TestKeys_RetiredPrimary_IsRefused(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	p.must(t, "keys", "create") // without a token, whose row the old key would have sealed
	p.must(t, "migrate")
	keys := p.setting("CARDMINT_KEYS")
	added := regexp.MustCompile(`added key ([0-9a-f]{8})`).FindStringSubmatch(p.must(t, "keys", "add"))[1]
	before, err := os.ReadFile(keys)
	must(t, err)
	v, err := vault.Open(keys)
	must(t, err)
	old := v.Keys().Primary.String()
	p.must(t, "keys", "promote", added)
	p.must(t, "keys", "retire", old)
	must(t, os.WriteFile(keys, before, 0o600))
	for _, args := range [][]string{{"serve", "--simulated", "--rate", "monero=150"}, {"card", "list"}} {
		if _, stderr, code := p.run(args...); code != 1 ||
			!strings.Contains(stderr, "hint: copy the newest key file here") || !strings.Contains(stderr, old) {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	p.must(t, "keys", "list")
	p.must(t, "keys", "promote", added) // as if the newest file were lost
	p.must(t, "card", "list")
}

// A host with an old copy of the key file would encrypt with the old key, and
// could not read the rows of the other hosts.
func TestKeys_OldCopyOfFile_IsRefused(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	p.account(t)
	keys := p.setting("CARDMINT_KEYS")
	before, err := os.ReadFile(keys)
	must(t, err)
	added := regexp.MustCompile(`added key ([0-9a-f]{8})`).FindStringSubmatch(p.must(t, "keys", "add"))[1]
	p.must(t, "keys", "promote", added)
	must(t, os.WriteFile(keys, before, 0o600))
	for _, args := range [][]string{{"serve", "--simulated", "--rate", "monero=150"}, {"keys", "list"}, {"card", "list"}} {
		if _, stderr, code := p.run(args...); code != 1 ||
			!strings.Contains(stderr, "hint: copy the newest key file here") || !strings.Contains(stderr, added) {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	for _, args := range [][]string{{"keys", "promote", "x"}, {"keys", "retire", "0000000g"},
		{"keys", "add", "--keys", "/no/such/file"}} {
		if _, stderr, code := p.run(args...); code == 0 || strings.Count(stderr, "\n") != 2 ||
			!strings.Contains(stderr, "hint: ") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}

func TestCardPurge_WithoutYes_DeletesNothing(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	p := newProgram(t, "")
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--mask-credentials")
	made, unpaid := s.order(t, token, "1"), s.order(t, token, "0.5")
	c := newClient(t, s.url, token)
	seen, err := c.WaitForCard(t.Context(), made.UUID)
	must(t, err)
	if !strings.HasPrefix(seen.Credentials.CardNumber, "************") {
		t.Error("the card number is not masked")
	}
	purge := []string{"card", "purge", made.UUID.String(), "--note", "asked for it", "--operator", "alice"}
	wantOutput(t, p.must(t, purge...), "would permanently delete the credentials", "Nothing was changed", "--yes")
	if revealed, err := c.RevealCard(t.Context(), made.UUID); err != nil || revealed.Credentials.CardNumber == "" {
		t.Errorf("purged without --yes: %v", err)
	}
	wantOutput(t, p.must(t, append(purge, "--yes")...), "purged")
	wantOutput(t, p.must(t, append(purge, "--yes")...), "nothing to do")
	if purged, err := c.RevealCard(t.Context(), made.UUID); err != nil || purged.CredentialsPurgedAt == nil ||
		purged.Credentials != (client.Credentials{}) || purged.Status != client.CardStatusGenerated {
		t.Errorf("%+v, %v", purged, err)
	}
	wantOutput(t, p.must(t, "card", "show", made.UUID.String()), "purged at", "purge ", "alice", "asked for it")
	wantOutput(t, p.must(t, "reconcile"), "everything agrees")
	if _, stderr, code := p.run("card", "purge", unpaid.UUID.String(), "--note", "n", "--yes"); code != 1 ||
		!strings.Contains(stderr, "hint: ") {
		t.Errorf("a card that is not issued: exit code %d, %s", code, stderr)
	}
	if _, stderr, code := p.run("card", "purge", unpaid.UUID.String(), "--note", "n"); code != 1 ||
		!strings.Contains(stderr, "hint: ") {
		t.Errorf("a card that is not issued, without --yes: exit code %d, %s", code, stderr)
	}
	if text := s.Output(); !strings.Contains(text, "action=credentials_shown") {
		t.Error("the log has no audit line")
	}
	s.stop(t)
}

func TestServe_LostKeyFile_WarnsAndServes(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "sqlite:"+filepath.Join(t.TempDir(), "x.db"))
	p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	keys := p.setting("CARDMINT_KEYS")
	text, err := os.ReadFile(keys)
	must(t, err)
	get := func(url string) (int, string) {
		res, err := http.Get(url)
		must(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		return res.StatusCode, string(body)
	}
	shows := func(warning string, usable string) {
		t.Helper()
		for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
			code, body := get(s.url + "/readyz")
			_, metrics := get("http://" + s.metricsAddress() + "/metrics")
			if code == http.StatusOK && strings.Contains(body, warning) == (usable == "0") &&
				strings.Contains(metrics, "\ncardmint_key_file_usable "+usable+"\n") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d %s", code, body)
			}
		}
	}
	const warning = `"warnings":{"key file":"lost or damaged: restore its copy before a restart"}`
	shows(warning, "1")
	must(t, os.Remove(keys))
	shows(warning, "0")
	must(t, os.WriteFile(keys, text, 0o600))
	shows(warning, "1")
	must(t, os.WriteFile(keys, text[:len(text)/2], 0o600))
	shows(warning, "0")
	s.stop(t)
	for _, damage := range []func(){func() {}, func() { must(t, os.Remove(keys)) }} {
		damage()
		_, stderr, code := p.run("serve", "--simulated", "--rate", "monero=150")
		if code == 0 || strings.Contains(stderr, "keys create --keys") {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
		wantOutput(t, stderr, "hint: restore the copy of the key file to "+keys)
	}
}

func TestKeys_MissingWithNewDatabase_HintsKeysCreate(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	for range 2 {
		_, stderr, _ := p.run("account", "create", "shop")
		wantOutput(t, stderr, "hint: make a key file once with: cardmint keys create")
		p.must(t, "migrate")
	}
}

// metricsAddress returns the address that a process chose for its metrics.
func (s *server) metricsAddress() string {
	return strings.TrimSuffix(strings.TrimPrefix(metricsLine.FindStringSubmatch(s.Output())[1], "http://"), "/metrics")
}
