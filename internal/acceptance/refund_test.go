package acceptance_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// If no supplier makes a card, its payment is refunded to the address in the
// order, and the customer sees the transaction.
func TestCardResolve_RefundDue_IsRefunded(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: waits for seconds")
	}
	t.Parallel()
	const to = "4AdUndXHHZ6cfufTMvppY6JwXNouMBzSkbLYfpAV5Usx3skxNgYeYTRj5UzqtReoS44qo9mtmXCqY45DJ852K5Jv2684Rge"
	p := newProgram(t, "sqlite:"+filepath.Join(t.TempDir(), "x.db"))
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--sandbox-supplier", "declining")
	c := newClient(t, s.url, token)
	made, err := c.CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero", RefundAddress: to})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{}); err != nil {
		t.Fatal(err)
	}
	id := made.UUID.String()
	await(t, waitLimit, "card list --attention to list the card", func() bool {
		return strings.Contains(p.must(t, "card", "list", "--attention"), id)
	})
	list := strings.Join(strings.Fields(p.must(t, "card", "list", "--attention")), " ")
	wantOutput(t, list, "SINCE WORTH STATE WHY", "150 paid refund due: the sandbox declines")
	if !regexp.MustCompile(`1 1 2\d{3}-\S+ 150 paid refund due`).MatchString(list) {
		t.Error(list)
	}
	wantOutput(t, p.must(t, "card", "list", "--attention", "--json"),
		`"why":"refund due: the sandbox declines as configured","since":"2`, `"worth_usd":"150"`)
	shown := p.must(t, "card", "show", id)
	wantOutput(t, shown, "an operator to decide: its refund is due since 2", "refund to      4AdUnd...684Rge",
		"refused by     sandbox, for good: the sandbox declines",
		"To ask the suppliers again for a card of 150 USD, which was paid with what is worth 150 USD today:",
		"To give back 1 monero:", "card.refund_due")
	if strings.Contains(shown, to) {
		t.Error("the full address is shown")
	}

	stdout, stderr, code := p.run("card", "show", "--refund-address", id, "--log-level", "error")
	if code != 0 || strings.TrimSpace(stdout) != to || strings.Contains(stderr, to) {
		t.Errorf("exit code %d, %s", code, stdout)
	}
	wantOutput(t, stderr, "msg=audit action=refund_address_shown actor=operator:", "card="+id)

	refund := []string{"card", "resolve", id, "refund", "--note", "nobody makes it"}
	wantOutput(t, p.must(t, refund...), "would give back 1 monero; payment is paid. Nothing was changed.",
		"--amount 1 --yes")
	wantOutput(t, p.must(t, append(refund, "--amount", "1", "--yes")...),
		"recorded: give back 1 monero; payment was paid, is ",
		"Now send exactly 1 monero", "cardmint card show --refund-address "+id,
		"cardmint card resolve "+id+" refund --note '...' --txid '...'")
	if read, err := c.GetCard(t.Context(), made.UUID); err != nil || read.Refund == nil ||
		read.Refund.Amount.String() != "1" || read.Refund.TxID != "" {
		t.Errorf("%+v, %v", read, err)
	}

	retry := []string{"card", "resolve", id, "retry", "--note", "x"}
	_, stderr, _ = p.run(retry...)
	wantOutput(t, stderr, "its money was refunded: 1 monero, with no transaction recorded yet", "hint: ",
		"cardmint card resolve "+id+" refund --note '...' --txid '...'")
	txid := strings.Repeat("0a", 32)
	for _, wrong := range []string{"0a", txid + "0", strings.Repeat("zz", 32)} {
		if _, stderr, code = p.run(append(refund, "--txid", wrong)...); code == 0 ||
			!strings.Contains(stderr, "--txid is not the id of a transaction of Monero") {
			t.Errorf("%s: exit code %d: %s", wrong, code, stderr)
		}
	}
	if _, stderr, code = p.run("card", "resolve", id, "retry", "--note", "x", "--txid", txid); code == 0 ||
		!strings.Contains(stderr, "--txid is only for refund") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	sent := append(refund, "--txid", strings.ToUpper(txid))
	wantOutput(t, p.must(t, sent...), "would note that transaction "+txid+" gave back the 1 monero of 2",
		"--txid "+txid+" --amount 1 --yes")
	wantOutput(t, p.must(t, append(sent, "--amount", "1", "--yes")...), "recorded: note that transaction "+txid,
		"The customer sees the transaction")
	wantOutput(t, p.must(t, append(sent, "--amount", "1", "--yes")...),
		"nothing left to do: the refund of card "+id+" has this transaction already")
	wantOutput(t, p.must(t, "card", "show", id), "refunded       1, last at 2", "transaction "+txid)
	if read, err := c.GetCard(t.Context(), made.UUID); err != nil || read.Refund == nil || read.Refund.TxID != txid ||
		read.RefundAddress != "4AdUnd...684Rge" {
		t.Errorf("%+v, %v", read, err)
	}
	if _, stderr, code = p.run("card", "resolve", id, "retry", "--note", "x"); code == 0 {
		t.Errorf("a second refund is accepted: %s", stderr)
	}
	wantOutput(t, stderr, "its money was refunded: 1 monero, by transaction "+txid, "hint: ", "cardmint card show "+id)
	wantOutput(t, p.must(t, "reconcile"), "everything agrees")
	if strings.Contains(s.Output(), to) {
		t.Error("the log contains the refund address")
	}
}

// A card with a damaged refund address is still shown.
func TestCardShow_DamagedRefundAddress_ShowsRest(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	id := s.order(t, token, "0.5").UUID.String()
	s.stop(t)
	if _, err := rig.OpenSQL(t, url).Exec("UPDATE cards SET refund_address = $1", []byte("canary")); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, "card", "show", id), "card           "+id,
		"refund to      an address that can't be decrypted: ask the customer")
	if _, stderr, code := p.run("card", "show", "--refund-address", id); code != 1 || !strings.Contains(stderr, "hint: ") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
