package acceptance_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// sendStray adds a payment with ten confirmations to an address that the
// database does not know.
func sendStray(t *testing.T, p *program, db *sql.DB, txid string, coins int64) {
	t.Helper()
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO simulated_transfers (currency, txid, address, amount, height, seen_at)
			SELECT currency, '%s', 'address of %s', %d, height + 1, %d FROM simulated_chains`, txid, txid, coins, time.Now().UnixMilli()),
		"UPDATE simulated_chains SET height = height + 10",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	await(t, waitLimit, "transaction "+txid+" to be listed", func() bool {
		return strings.Contains(p.must(t, "transfers", "--unattributed"), txid)
	})
}

func TestTransfersAttribute_ForgottenPayments_AreSettled(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	db := rig.OpenSQL(t, url)
	const forCard, forNew, back = "5c1f7a", "81b3d0", "d90e44"
	sendStray(t, p, db, forCard, 1e12)
	sendStray(t, p, db, forNew, 15e11)
	sendStray(t, p, db, back, 3e12)
	waiting, err := newClient(t, s.url, token).CreateCard(t.Context(),
		client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
	if err != nil {
		t.Fatal(err)
	}
	list := p.must(t, "transfers", "--unattributed")
	wantOutput(t, list, "TRANSACTION", forCard, forNew, back)
	stdout, stderr, code := p.run("reconcile")
	if code != 3 {
		t.Errorf("reconcile: exit code %d", code)
	}
	wantOutput(t, stdout, "unattributed  5.5", "everything agrees",
		"waits: 1 monero of transaction "+forCard+", output 0, came to no card, since 2", forNew, back)
	wantOutput(t, stderr, "it agrees, but something waits", "hint: ", "cardmint transfers --unattributed")

	// decide runs a command, and then the command that it printed.
	decide := func(would, did string, args ...string) string {
		t.Helper()
		args = append([]string{"transfers", "attribute"}, append(args, "--note", "ticket 4711", "--operator", "alice")...)
		printed := p.must(t, args...)
		wantOutput(t, printed, "would "+would, "Nothing was changed.", "To do it:\n  cardmint transfers attribute ", "--amount ")
		if again := p.must(t, args...); again != printed {
			t.Errorf("printed %q, then %q", printed, again)
		}
		if _, stderr, code := p.run(append(args, "--amount", "0.1", "--yes")...); code != 1 ||
			!strings.Contains(stderr, "not 0.1") || !strings.Contains(stderr, "hint: ") {
			t.Errorf("wrong amount: exit code %d, %s", code, stderr)
		}
		done := commandsIn(t, printed)[0]
		printed = p.must(t, done...)
		wantOutput(t, printed, "recorded: "+did)
		wantOutput(t, p.must(t, done...), "nothing left to do")
		return printed
	}
	decide("count 1 monero toward card "+waiting.UUID.String()+" of 150 USD; payment is unpaid, would be paid",
		"count 1 monero toward card", forCard, "--card", waiting.UUID.String())
	printed := decide("make a card of 300 USD for 1.5 monero, at 200 USD each", "make a card of 300 USD for 1.5 monero",
		forNew, "--new", "--account", "shop", "--usd", "300", "--output", "0")
	made := uuid.MustParse(regexp.MustCompile(`card (\S+), payment is paid`).FindStringSubmatch(printed)[1])
	decide("give back 3 monero", "give back 3 monero", back, "--refunded")

	for _, id := range []uuid.UUID{waiting.UUID, made} {
		card, err := newClient(t, s.url, token).WaitForCard(t.Context(), id)
		if err != nil || card.Status != client.CardStatusGenerated || card.Payment.State != client.PaymentStatePaid {
			t.Errorf("%+v, %v", card, err)
		}
		wantOutput(t, p.must(t, "card", "show", id.String()), "attribute", "alice", "ticket 4711", "card.generated")
	}
	wantOutput(t, p.must(t, "card", "show", made.String()), "operator", forNew)
	if list := p.must(t, "transfers", "--unattributed"); strings.Contains(list, "monero") {
		t.Errorf("still unattributed:\n%s", list)
	}
	wantOutput(t, p.must(t, "transfers", "--all"), "DECISION", "card "+waiting.UUID.String(), "new card "+made.String(),
		"refunded", "alice", "ticket 4711")
	wantOutput(t, p.must(t, "reconcile"), "everything agrees", "2 issued, 2 paid", "returned")
	for want, args := range map[string][]string{
		"another decision about the transfer was made before: it counts toward card " +
			waiting.UUID.String(): {forCard, "--refunded"},
		"another decision about the transfer was made before: its money was given back": {back, "--new",
			"--account", "shop", "--usd", "50"},
		"the transaction has no output 7 to this wallet": {back,
			"--refunded", "--output", "7"},
		`there is no account "nobody"`: {forNew,
			"--new", "--account", "nobody", "--usd", "50"},
	} {
		_, stderr, code := p.run(append(append([]string{"transfers", "attribute"}, args...), "--note", "x")...)
		if code != 1 {
			t.Errorf("%v: exit code %d", args, code)
		}
		wantOutput(t, stderr, want, "hint: ")
	}
}

func TestTransfersAttribute_SeveralOutputs_NeedsOutput(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	p.account(t)
	db := rig.OpenSQL(t, url)
	for _, statement := range []string{
		"INSERT INTO chains (currency, fingerprint, height, hash, time) VALUES ('monero', 'f', 14, 'h', 0)",
		`INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES
			('monero', 'x', 3, 'a', 1000000000000, 5, 0, 1, 0), ('monero', 'x', 8, 'b', 2000000000000, 6, 0, 1, 0)`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	attribute := []string{"transfers", "attribute", "x", "--refunded", "--note", "n"}
	_, stderr, code := p.run(attribute...)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, stderr, "several outputs", "hint: say which with --output, of: 3, 8")
	wantOutput(t, p.must(t, append(attribute, "--output", "3")...), "would give back 1 monero")
	_, stderr, code = p.run(append(attribute, "--output", "8")...)
	if code != 1 {
		t.Errorf("with nine confirmations: exit code %d", code)
	}
	wantOutput(t, stderr, "not confirmed", "hint: wait")
	wantOutput(t, p.must(t, "transfers", "--unattributed"), "OUTPUT", "x            3       a", "x            8       b")
}
