package acceptance_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// order creates a card of 150 US dollars, which costs one coin, and pays the
// given number of coins.
func (s *server) order(t *testing.T, token, pays string) *client.Card {
	t.Helper()
	c := newClient(t, s.url, token)
	card, err := c.CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}
	amount, err := decimal.NewFromString(pays)
	if err != nil {
		t.Fatal(err)
	}
	if card, err = c.SimulatePayment(t.Context(), card.UUID, client.SimulatePaymentRequest{Amount: &amount}); err != nil {
		t.Fatal(err)
	}
	return card
}

// wantOutput fails the test unless text contains all strings.
func wantOutput(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestCardResolve_UnderpaidCard_AcceptIssuesIt(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	p := newProgram(t, "")
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	short := s.order(t, token, "0.9")
	made := s.order(t, token, "1.5")

	wantOutput(t, p.must(t, "card", "list"), short.UUID.String(), made.UUID.String(), "underpaid", "shop")
	wantOutput(t, p.must(t, "card", "list", "--state", "underpaid", "--account", "shop"), short.UUID.String())
	if list := p.must(t, "card", "list", "--state", "late"); strings.Contains(list, short.UUID.String()) {
		t.Errorf("listed as late:\n%s", list)
	}
	wantOutput(t, p.must(t, "card", "show", short.UUID.String()), "underpaid", "0.9", "due 0.1", "payment.underpaid",
		short.Payment.Address)
	wantOutput(t, p.must(t, "reconcile"), "everything agrees", "counted", "2.4", "0.5", "1 issued, 1 paid")

	decide := []string{"card", "resolve", short.UUID.String(), "accept", "--note", "a good customer", "--operator",
		"alice"}
	stdout, stderr, code := p.run(decide...)
	if code != 0 {
		t.Errorf("exit code %d without --yes: %s", code, stderr)
	}
	wantOutput(t, stdout, "would accept 0.9 monero as enough for a card of 150 USD", "Nothing was changed",
		"--amount 0.9 --yes")
	if c, err := newClient(t, s.url, token).GetCard(t.Context(), short.UUID); err != nil ||
		c.Status != client.CardStatusAwaitingPayment {
		t.Errorf("executed without --yes: %+v, %v", c, err)
	}
	if _, stderr, code := p.run(append(decide, "--amount", "0.8", "--yes")...); code != 1 ||
		!strings.Contains(stderr, "0.9, not 0.8") {
		t.Errorf("another amount: exit code %d, %s", code, stderr)
	}
	decide = append(decide, "--amount", "0.9", "--yes")
	wantOutput(t, p.must(t, decide...), "recorded: accept 0.9", "was underpaid, is paid")
	if stdout, stderr, code := p.run(decide...); code == 0 {
		wantOutput(t, stdout, "nothing left to do")
	} else { // the issuer was faster
		wantOutput(t, stderr, "the card is already issued")
	}
	card, err := newClient(t, s.url, token).WaitForCard(t.Context(), short.UUID)
	if err != nil {
		t.Fatal(err)
	}
	shown := p.must(t, "card", "show", short.UUID.String())
	wantOutput(t, shown, "generated", "accept", "alice", "a good customer", "card.generated")
	for _, secret := range []string{card.Credentials.CardNumber, card.Credentials.URL, card.Credentials.URLPassword} {
		if strings.Contains(shown, secret) {
			t.Errorf("a credential is shown:\n%s", shown)
		}
	}
	// Any identifier or address may contain the three digits. A security code
	// would be a separate word; the only other word of three digits is the
	// price.
	word := regexp.MustCompile(`\b` + card.Credentials.SecurityCode + `\b`)
	if found := word.FindString(strings.ReplaceAll(shown, "150 USD", "")); found != "" {
		t.Errorf("the security code %s is shown:\n%s", found, shown)
	}
	wantOutput(t,
		p.must(t, "card", "resolve", made.UUID.String(), "refund", "--note", "surplus", "--amount", "0.5", "--yes"),
		"give back 0.5 monero")
	wantOutput(t, p.must(t, "reconcile"), "everything agrees", "2 issued, 2 paid")
	wantOutput(t, p.must(t, "transfers", "--unattributed"), "TRANSACTION")
	wantOutput(t, p.must(t, "wallet", "rescan"), "done; applied up to block")
}

func TestReconcile_TransfersDeleted_Fails(t *testing.T) {
	url := rig.Postgres(t)
	p := newProgram(t, url)
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	card := s.order(t, token, "1")
	s.stop(t)
	wantOutput(t, p.must(t, "reconcile"), "everything agrees")
	if _, err := rig.OpenSQL(t, url).Exec("DELETE FROM transfers"); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := p.run("reconcile")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, stdout, "doubt: "+card.UUID.String(), "its received amount does not match its transfers",
		"0 were counted")
	wantOutput(t, stderr, "hint: ")
}

func TestTransfers_LimitReached_ReportsMore(t *testing.T) {
	skipIfShort(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	p.account(t)
	const insert = "INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('monero', ?, 0, 'a', 1, 5, 0, 1, ?)"
	db := rig.OpenSQL(t, url)
	for i, id := range []string{"oldest", "middle", "newest"} {
		if _, err := db.Exec(insert, id, i); err != nil {
			t.Fatal(err)
		}
	}
	for limit, more := range map[string]bool{"1": true, "2": true, "3": false, "4": false} {
		stdout, stderr, code := p.run("transfers", "--unattributed", "--limit", limit)
		if hinted := strings.Contains(stderr, "there are more than these "+limit); code != 0 || hinted != more {
			t.Errorf("--limit %s: exit code %d, hint at more transfers: %t\n%s", limit, code, hinted, stderr)
		}
		wantOutput(t, stdout, "newest")
		if strings.Contains(stdout, "oldest") == more {
			t.Errorf("--limit %s:\n%s", limit, stdout)
		}
	}
}

func TestCLI_OperatorMistake_IsExplained(t *testing.T) {
	skipIfShort(t)
	p := newProgram(t, "")
	p.account(t)
	const nobody = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"card show " + nobody, 1, "there is no card " + nobody},
		{"card show x", 1, `"x" is not the uuid of a card`},
		{"card list --account nobody", 1, `there is no account "nobody"`},
		{"card list --state odd", 2, "--state must be one of"},
		{"card resolve " + nobody + " accept --note x", 1, "there is no card"},
		{"card resolve " + nobody + " accept", 2, "--note"},
		{"card resolve " + nobody + " accept --note x --yes", 1, "--yes needs --amount"},
		{"card list --limit 0", 1, "--limit 0"},
		{"wallet rescan dogecoin", 1, "not the code of a currency"},
		{"wallet claim dogecoin", 1, "not the code of a currency"},
		{"wallet claim --yes", 1, "has no wallet yet"},
		{"card resolve " + nobody + " burn --note x", 2, "must be one of"},
		{"transfers --all --unattributed", 2, "can't be used together"},
		{"transfers --limit 0", 1, "--limit 0"},
		{"transfers --all --limit 0", 1, "--limit 0"},
		{"transfers attribute x --note x", 2, "--card=UUID or --new or --refunded"},
		{"transfers attribute x --note x --refunded --new", 2, "can't be used together"},
		{"transfers attribute x --refunded", 2, "--note"},
		{"transfers attribute x --refunded --note x", 1, `this wallet received no transaction "x"`},
		{"transfers attribute x --refunded --note x --yes", 1, "--yes needs --amount"},
		{"transfers attribute x --refunded --note x --usd 50", 1, "--account and --usd are for a new card"},
		{"transfers attribute x --card x --note x", 1, `"x" is not the uuid of a card`},
		{"transfers attribute x --new --note x", 1, "--new needs --account and --usd"},
		{"transfers attribute x --new --account shop --usd 49 --note x", 1, `"49" is not the balance of a card`},
		{"transfers attribute x --new --account shop --usd ten --note x", 1, `"ten" is not the balance of a card`},
		{"wallet rescan", 1, "has no wallet yet"},
		{"rate show --rate-sources nobody", 1, "nobody"},
		{"rate show --rate-sources coinbase,coingecko,kraken", 1, "rate source coinbase has no market for monero"},
		{"rate show --rate-max-spread x", 1, "--rate-max-spread"},
	} {
		stdout, stderr, code := p.run(strings.Fields(tt.args)...)
		if code != tt.code || stdout != "" {
			t.Errorf("%s: exit code %d, printed %q", tt.args, code, stdout)
		}
		wantOutput(t, stderr, tt.want, "hint: ")
	}
}

// reconcile lists rows that can't be decoded. All other commands and endpoints
// keep working.
func TestReconcile_DamagedRows_AreNamed(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	sealed, coin, good := s.order(t, token, "1"), s.order(t, token, "0.5"), s.order(t, token, "0.5")
	db := rig.OpenSQL(t, url)
	for _, statement := range []string{
		"UPDATE credentials SET url = CAST('canary' AS BLOB) WHERE card_uuid = '" + sealed.UUID.String() + "'",
		"UPDATE cards SET currency = 'canary' WHERE uuid = '" + coin.UUID.String() + "'",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, code := p.run("reconcile")
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	wantOutput(t, stdout, "doubt: "+sealed.UUID.String()+": its credentials can't be decrypted",
		"doubt: "+coin.UUID.String()+": its row can't be decoded")
	stdout, stderr, code = p.run("card", "list")
	if code != 0 || strings.Contains(stdout, coin.UUID.String()) {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	wantOutput(t, stdout, good.UUID.String(), sealed.UUID.String())
	wantOutput(t, stderr, "a row can't be decoded", coin.UUID.String())
	_, stderr, code = p.run("card", "show", coin.UUID.String())
	if code != 1 || strings.Contains(stderr, "canary") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	wantOutput(t, stderr, "its row can't be decoded: this version does not know its currency",
		"hint: run the newest version")

	if response, err := http.Get(s.url + "/readyz"); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", response, err)
	}
	c, n := newClient(t, s.url, token), 0
	for got, err := range c.ListCards(t.Context(), client.ListCardsOptions{}) {
		if n++; err != nil || got.UUID != good.UUID {
			t.Errorf("%v, %v", got, err)
		}
	}
	var refusal *client.Error
	if _, err := c.GetCard(t.Context(), sealed.UUID); n != 1 || !errors.As(err, &refusal) ||
		refusal.Code != client.ProblemCodeInternal {
		t.Errorf("%d cards are listed; the damaged one: %v", n, err)
	}
}

// card show prints why a card waits, for how long, and which payments a
// decision does not include.
func TestCardShow_WaitingCard_NamesReason(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	short := s.order(t, token, "0.75")
	db := rig.OpenSQL(t, url)
	for _, statement := range []string{ // an unconfirmed second payment
		"INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at) SELECT currency, 'waiting', address, 125000000000, 0, seen_at FROM simulated_transfers",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	show := []string{"card", "show", short.UUID.String()}
	await(t, waitLimit, "card show to include the second payment", func() bool {
		return strings.Contains(p.must(t, show...), "0.875")
	})
	s.stop(t)
	wantOutput(t, p.must(t, show...), "the customer to pay 0.125 monero more until ",
		"131.25 USD, at 150 USD each by its quote", "18.75 USD are missing, now 0.125 monero",
		"To issue the card for 0.875 monero, which costs you 18.75 USD:",
		"To give back 0.75 monero (without 0.125 monero, which is not confirmed yet: it may never be yours):")
	resolve := []string{"card", "resolve", short.UUID.String()}
	wantOutput(t, p.must(t, append(resolve, "refund", "--note", "x")...),
		"would give back 0.75 monero (without 0.125 monero, which is not confirmed yet")
	if _, err := db.Exec("UPDATE transfers SET locked = 1 WHERE txid = 'waiting'"); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, append(resolve, "accept", "--note", "it's fine")...),
		"would accept 0.75 monero as enough for a card of 150 USD (without 0.125 monero, which the sender has locked)",
		"which costs you 37.50 USD", `--note 'it'\''s fine' --amount 0.75 --yes`)

	if _, err := db.Exec(
		`INSERT INTO accepted_rates (id, currency, usd, source, accepted_at, accepted_by) VALUES ('019aa1c9-f868-7cef-8e4e-9b1c97fb1d88', 'monero', 20000000000, 'kraken', 0, 'x')`); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, show...), "175 USD, at 200 USD each by kraken of 1970-01-01T00:00:00Z",
		"which costs you nothing")
	if _, err := db.Exec("UPDATE cards SET payment_state = 'confirming', height = 0"); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, show...),
		"the sender to unlock 0.125 monero in transaction waiting: only the sender knows when that is")
	if _, err := db.Exec(
		"UPDATE transfers SET locked = 0, height = (SELECT height FROM chains) - 2 WHERE txid = 'waiting'"); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, show...), "CONFIRMATIONS", "7 of 10 confirmations of 0.125 monero in transaction waiting",
		"which takes about 14m0s")
	if _, err := db.Exec("UPDATE cards SET payment_state = 'paid'"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(
		`INSERT INTO intents (card_uuid, state, key, attempts, due_at, reason) VALUES (?, 'open', 'k', 3, 4102444800000, 'no answer')`, short.UUID.String()); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, show...),
		"waits for      the supplier, who was asked 3 times (no answer), and is asked again at 2100-01-01T00:00:00Z")
}

// Dust that a third party sends to a card must not flood the operator's
// terminal.
func TestCardShow_ManyTransfers_CutsList(t *testing.T) {
	skipIfShort(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	card := s.order(t, token, "0.5")
	s.stop(t)
	db := rig.OpenSQL(t, url)
	for _, statement := range []string{
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at)
			SELECT 'monero', 'dust' || i, 0, '` + card.Payment.Address + "', 1, 5, 0, 1, i FROM n",
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at)
			SELECT 'monero', 'stray' || i || '.', 0, 'a', 1, 5, 0, 1, i FROM n`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	cut := p.must(t, "card", "show", card.UUID.String())
	wantOutput(t, cut, " 0.5 ", "and 4981 smaller ones; see all with: cardmint card show "+card.UUID.String()+" --all")
	if n := strings.Count(cut, "dust"); n != 19 || len(cut) > 10_000 {
		t.Errorf("%d of 5000 are shown, in %d bytes", n, len(cut))
	}
	all := p.must(t, "card", "show", card.UUID.String(), "--all")
	if n := strings.Count(all, "dust"); n != 5000 {
		t.Errorf("%d of 5000 are shown", n)
	}
	stdout, stderr, code := p.run("transfers")
	if n := strings.Count(stdout, "stray"); code != 0 || n != 20 || strings.Contains(stdout, "stray10.") {
		t.Errorf("exit code %d, %d transfers:\n%s", code, n, stdout)
	}
	wantOutput(t, stdout, "stray30.", "stray11.", "DECISION")
	wantOutput(t, stderr, "there are more than these 20; see more of them with: --limit 200")
}

func TestErrors_CardsAndWallets_HintNextStep(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "sqlite:"+filepath.Join(t.TempDir(), "x.db"))
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	made, err := newClient(t, s.url, token).CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	id, unknown := made.UUID.String(), "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	spends := fakeWallet(t, currentWallet, false, rig.MoneroAddress(18, 0, 0))
	for _, tt := range []struct{ command, hint string }{
		{"card list --account nobody", "leave --account out"},
		{"card list --limit 0", "it takes 1 or more"},
		{"card show " + unknown, "cardmint card list"},
		{"card show x", "cardmint card list"},
		{"card resolve x refund --note x", "cardmint card list"},
		{"card resolve " + unknown + " refund --note x", "cardmint card list"},
		{"card resolve " + id + " refund --note=", "--note"},
		{"card resolve " + id + " refund --note x --yes", "without --yes first"},
		{"card resolve " + id + " accept --note x --txid y", "transaction by which you gave money back"},
		{"card resolve " + id + " accept --note x --amount y", "whole coins"},
		{"card resolve " + id + " accept --note x", "cardmint transfers --unattributed"},
		{"card resolve " + id + " refund --note x", "cardmint transfers --unattributed"},
		{"card resolve " + id + " write-off --note x", "cardmint card show " + id},
		{"card resolve " + id + " retry --note x", "cardmint card show " + id},
		{"card purge " + unknown + " --note x", "cardmint card list"},
		{"card purge " + id + " --note x", "cardmint card show " + id},
		{"wallet rescan doge", "it is one of: monero"},
		{"wallet claim doge", "it is one of: monero"},
		{"wallet check --coins doge", "it knows: monero"},
		{"wallet check --wallet-only --monero-daemon-url " + spends + " --monero-wallet-url " + spends,
			"make a view-only wallet"},
		{"wallet check --wallet-only --monero-daemon-url http://127.0.0.1:1", "start monerod"},
		{"wallet check --wallet-only --monero-wallet-login /nonexistent", "USER:PASSWORD"},
	} {
		_, stderr, code := p.run(strings.Fields(tt.command)...)
		_, hint, _ := strings.Cut(stderr, "hint: ")
		if code == 0 || !strings.Contains(hint, tt.hint) || strings.Contains(hint, "--help") {
			t.Errorf("%s: exit code %d, want the hint %q\n%s", tt.command, code, tt.hint, stderr)
		}
	}
}
