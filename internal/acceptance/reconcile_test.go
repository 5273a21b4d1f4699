package acceptance_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

// reconciliation is the output of 'reconcile --json', with every documented
// field.
type reconciliation struct {
	AsOf   string `json:"as_of"`
	Full   bool   `json:"full"`
	Agrees bool   `json:"agrees"`
	Coins  []struct {
		Currency                                                                             string
		Counted, Credited, Made, Open, Held, Refunded, Surplus, Unattributed, Returned, Lost string
		WrittenOff                                                                           string `json:"written_off"`
		Issued, Paid, Late                                                                   int
		InBlocks                                                                             string  `json:"in_blocks"`
		WalletBalance                                                                        *string `json:"wallet_balance"`
		WalletError                                                                          *string `json:"wallet_error"`
		SoldUSD                                                                              string  `json:"sold_usd"`
		CostUSD                                                                              *string `json:"cost_usd"`
	} `json:"coins"`
	Doubts  []struct{ ID, Text string } `json:"doubts"`
	Waiting []struct {
		Kind, Currency, Amount, Since, Card, TxID string
		Output                                    *int
	} `json:"waiting"`
}

// runReconcile runs 'reconcile --json', which must exit with code want and
// print no unknown fields.
func runReconcile(t *testing.T, p *program, want int, args ...string) (all reconciliation) {
	t.Helper()
	stdout, stderr, code := p.run(append([]string{"reconcile", "--json"}, args...)...)
	if code != want {
		t.Errorf("exit code %d, want %d: %s", code, want, stderr)
	}
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		t.Errorf("%v: %s", err, stdout)
	}
	return all
}

func TestReconcile_JSON_HasEveryField(t *testing.T) {
	t.Parallel()
	url := rig.Postgres(t)
	p := newProgram(t, url)
	token := p.account(t)
	empty := runReconcile(t, p, 0)
	if !empty.Agrees || empty.Coins == nil || empty.Doubts == nil || empty.Waiting == nil ||
		!strings.HasPrefix(empty.AsOf, "2") {
		t.Errorf("%+v", empty)
	}
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	card := s.order(t, token, "1")
	s.stop(t)
	db := rig.OpenSQL(t, url)
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}

	got := runReconcile(t, p, 0)
	if c := got.Coins[0]; !got.Agrees || c.Currency != "monero" || c.Counted != c.Made || c.Credited != c.Made ||
		c.Made == "0" || c.Lost != "0" || c.Issued != 1 || c.Paid != 1 || c.InBlocks != c.Counted || c.SoldUSD != "150" ||
		c.CostUSD != nil {
		t.Errorf("%+v", got)
	}
	exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', 'c0ffee', 1, 'nobody', 9223372036854775807, 1, FALSE, TRUE, 0)")
	exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', 'c0ffee', 2, 'nobody', 9223372036854775807, 1, FALSE, TRUE, 0)")
	got = runReconcile(t, p, 3)
	if got.Coins[0].Unattributed != "18446744.073709551614" || len(got.Waiting) != 2 {
		t.Errorf("%+v", got)
	}
	if w := got.Waiting[0]; w.Kind != "unattributed" || w.Amount != "9223372.036854775807" || w.TxID != "c0ffee" ||
		*w.Output != 1 || w.Card != "" || w.Since != "1970-01-01T00:00:00.000Z" {
		t.Errorf("%+v", w)
	}
	exec("DELETE FROM credentials")
	exec("UPDATE intents SET state = 'open', decided_at = decided_at - 1800000")
	exec("UPDATE cards SET status = 'awaiting_payment'")
	kinds := func(all reconciliation) (kinds []string) {
		for _, w := range all.Waiting {
			if kinds = append(kinds, w.Kind); w.Kind != "unattributed" && w.Card != card.UUID.String() {
				t.Errorf("%+v", w)
			}
		}
		return kinds
	}
	if got := kinds(runReconcile(t, p, 3)); len(got) != 2 {
		t.Errorf("after half an hour: %v", got)
	}
	exec("UPDATE intents SET decided_at = decided_at - 1800000")
	if got := kinds(runReconcile(t, p, 3)); !slices.Contains(got, "unissued") {
		t.Errorf("after an hour: %v", got)
	}
	exec("UPDATE cards SET payment_state = 'late'")
	exec("UPDATE intents SET state = 'parked'")
	exec("UPDATE events SET type = 'payment.late', created_at = created_at - 86400000 + 3600000")
	if got := kinds(runReconcile(t, p, 3)); slices.Contains(got, "late") {
		t.Errorf("after 23 hours: %v", got)
	}
	exec("UPDATE events SET created_at = created_at - 3600000")
	if got := kinds(runReconcile(t, p, 3)); !slices.Contains(got, "late") {
		t.Errorf("after a day: %v", got)
	}
	exec("UPDATE cards SET received = 0")
	got = runReconcile(t, p, 1, "--full")
	if got.Agrees || !got.Full || len(got.Waiting) != 3 || len(got.Doubts) != 2 || got.Doubts[0].ID != card.UUID.String() {
		t.Errorf("%+v", got)
	}
	stdout, stderr, code := p.run("reconcile", "--full")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, stdout, "doubt: "+card.UUID.String(), "waits: card "+card.UUID.String()+": ",
		" monero are late or too little, since 2")
	wantOutput(t, stderr, "adding up ...", "hint: ")
}

func TestReconcile_Help_ListsExitCodes(t *testing.T) {
	p := newProgram(t, "sqlite:unused.db")
	help := p.must(t, "reconcile", "--help")
	for _, want := range []string{"--full", "--json", "Exit codes:", "  0  the books are right, and nothing waits",
		"  1  the books are wrong, or can't be read",
		"  3  the books are right, but something waits for an operator", "written_off", "cardmint reconcile --full",
		"cardmint reconcile --json"} {
		if !strings.Contains(help, want) {
			t.Errorf("the help lacks %q:\n%s", want, help)
		}
	}
}

func TestReconcile_WalletBalance_IsComparedWithBooks(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "sqlite:"+filepath.Join(t.TempDir(), "x.db"))
	p.account(t)
	primary := rig.MoneroAddress(18, 0, 0)
	db := rig.OpenSQL(t, p.setting("CARDMINT_DATABASE_URL"))
	for _, statement := range []string{
		"INSERT INTO chains (currency, fingerprint, height, hash, time) VALUES ('monero', 'mainnet " + fakeGenesis + " " +
			primary + "', 90, 'x', 1700000000000)",
		"INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', 'c0ffee', 0, 'nobody', 2500000000000, 80, FALSE, TRUE, 0)",
		"INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', 'decade', 0, 'nobody', 1000000000000, 0, FALSE, TRUE, 0)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	own, other := fakeMonero(t, currentWallet, primary), fakeMonero(t, currentWallet, rig.MoneroAddress(18, 0, 9))
	from := func(url string) []string { return []string{"--monero-daemon-url", url, "--monero-wallet-url", url} }
	if c := runReconcile(t, p, 3, from(own)...).Coins[0]; c.Counted != "3.5" || c.InBlocks != "2.5" ||
		c.WalletBalance == nil || *c.WalletBalance != "2.5" || c.WalletError != nil {
		t.Errorf("%+v", c)
	}
	stdout, _, _ := p.run(append([]string{"reconcile"}, from(own)...)...)
	if rows := strings.Join(strings.Fields(stdout), " "); !strings.Contains(rows,
		"in blocks 2.5 as the books have it in the wallet 2.5") {
		t.Error(stdout)
	}
	for why, url := range map[string]string{"not the chain or wallet this database belongs to": other,
		"connection refused": "http://127.0.0.1:1"} {
		c := runReconcile(t, p, 3, from(url)...).Coins[0]
		if c.WalletBalance != nil || c.WalletError == nil || !strings.Contains(*c.WalletError, why) {
			t.Errorf("%s: %+v", why, c)
		}
		stdout, _, _ := p.run(append([]string{"reconcile"}, from(url)...)...)
		wantOutput(t, stdout, "in the wallet", "not read: ", why)
	}
}
