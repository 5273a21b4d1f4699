package acceptance_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// commandLine matches a command that another command prints for the operator to
// run.
var commandLine = regexp.MustCompile(`(?m)^ +cardmint (.+)$`)

var word = regexp.MustCompile(`'[^']*'|\S+`)

// commandsIn returns the arguments of all commands that are printed in text.
func commandsIn(t *testing.T, text string) (all [][]string) {
	t.Helper()
	for _, line := range commandLine.FindAllStringSubmatch(text, -1) {
		var args []string
		for _, w := range word.FindAllString(line[1], -1) {
			args = append(args, strings.Trim(w, "'"))
		}
		all = append(all, args)
	}
	if len(all) == 0 {
		t.Fatalf("no command is printed:\n%s", text)
	}
	return all
}

// auditLine matches the line of the audit log on standard error.
var auditLine = regexp.MustCompile(`(?m)^time=\S+ level=INFO msg=audit action=[^\n]*\n`)

// transcript runs commands like an operator, and records their output.
type transcript struct {
	t    *testing.T
	p    *program
	text strings.Builder
}

// run runs a command, which must succeed, and returns its output.
func (x *transcript) run(args ...string) string {
	x.t.Helper()
	stdout, stderr, code := x.p.run(args...)
	shown := slices.Clone(args)
	for i, a := range args {
		if strings.Contains(a, " ") {
			shown[i] = "'" + a + "'"
		}
	}
	fmt.Fprintf(&x.text, "\n$ cardmint %s\n%s%s", strings.Join(shown, " "), stdout, stderr)
	if code != 0 {
		x.t.Errorf("%v: exit code %d\n%s", args, code, x.text.String())
	}
	if people := auditLine.ReplaceAllString(stderr, ""); strings.Contains(people, "level=") ||
		strings.Contains(stdout, "000000000") {
		x.t.Errorf("%v prints log lines or raw amounts:\n%s%s", args, stdout, stderr)
	}
	return stdout + stderr
}

// runPrinted runs the first printed command that contains all words. It
// replaces "..." by note.
func (x *transcript) runPrinted(printed, note string, words ...string) string {
	x.t.Helper()
	for _, args := range commandsIn(x.t, printed) {
		if i := slices.IndexFunc(words, func(w string) bool { return !slices.Contains(args, w) }); i >= 0 {
			continue
		}
		if i := slices.Index(args, "..."); i >= 0 {
			args[i] = note
		}
		return x.run(args...)
	}
	x.t.Fatalf("no command with %v is printed:\n%s", words, x.text.String())
	return ""
}

// decisions holds the operator's decision for each card.
type decisions map[uuid.UUID]string

// An operator can settle everything that waits with printed commands alone:
// each output contains the next command.
func TestCLI_PrintedCommands_SettleEverything(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	flags := []string{"serve", "--simulated", "--rate", "monero=150"}
	s := p.serve(t, append(flags, "--sandbox-supplier", "declining")...)
	declined, parked := s.order(t, token, "1"), s.order(t, token, "1")
	s.stop(t)
	db := rig.OpenSQL(t, url)
	if _, err := db.Exec(
		"UPDATE intents SET state = 'parked', reason = 'it answered with no card number' WHERE card_uuid = ?",
		parked.UUID.String()); err != nil {
		t.Fatal(err)
	}
	s = p.serve(t, flags...)
	late, back, reversed := s.order(t, token, "0.9"), s.order(t, token, "0.25"), s.order(t, token, "1")
	for _, statement := range []string{
		// the cards expire
		"UPDATE cards SET expires_at = created_at WHERE uuid IN ('" + late.UUID.String() + "', '" + back.UUID.String() + "')",
		"DELETE FROM simulated_transfers WHERE address = '" + reversed.Payment.Address + "'",
		"UPDATE simulated_chains SET reorgs = reorgs + 1, height = height + 1",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	sendStray(t, p, db, "5c1f7a", 2e12)
	x := &transcript{t: t, p: p}
	defer func() { t.Log(x.text.String()) }()
	how := decisions{late.UUID: "accept", back.UUID: "refund", reversed.UUID: "write-off", declined.UUID: "retry",
		parked.UUID: "refund"}
	s.awaitPayments(t, token,
		map[uuid.UUID]client.PaymentState{late.UUID: client.PaymentStateLate, back.UUID: client.PaymentStateLate,
			reversed.UUID: client.PaymentStateReversed})

	printed := x.run("card", "list", "--attention")
	wantOutput(t, p.must(t, "card", "show", parked.UUID.String()),
		"an operator to decide: the card could not be issued: it answered with no card number")
	wantOutput(t, p.must(t, "card", "show", declined.UUID.String()), "an operator to decide: its refund is due since 2",
		": no supplier makes the card: the sandbox declines")
	for range len(how) {
		printed = x.runPrinted(printed, "", "card", "show") // of the first card
		id := regexp.MustCompile(`card +(\S+) of account`).FindStringSubmatch(printed)[1]
		wantOutput(t, printed, "waits for", "an operator to decide: ")
		printed = x.runPrinted(printed, "as agreed with the customer", "card", "resolve", how[uuid.MustParse(id)])
		wantOutput(t, printed, "would ", "Nothing was changed.", "To do it:")
		printed = x.runPrinted(printed, "", "--yes")
		wantOutput(t, printed, "recorded: ")
		printed = x.runPrinted(printed, "", "card", "list", "--attention")
	}
	wantOutput(t, printed, "no card waits for an operator", "Money came to addresses of no card.")
	printed = x.runPrinted(printed, "", "transfers", "--unattributed")
	printed = x.runPrinted(printed, "nobody knows whose it is", "--refunded")
	printed = x.runPrinted(printed, "", "--yes")
	wantOutput(t, printed, "Now send exactly 2 monero")
	wantOutput(t, x.runPrinted(printed, "", "transfers", "--unattributed"), "no transfer waits for an operator")
	s.awaitPayments(t, token,
		map[uuid.UUID]client.PaymentState{late.UUID: client.PaymentStatePaid, declined.UUID: client.PaymentStatePaid,
			back.UUID: client.PaymentStateExpired})
	wantOutput(t, x.run("reconcile"), "everything agrees")
	if list := x.run("card", "list", "--attention"); strings.Contains(list, "monero") {
		t.Errorf("cards still wait:\n%s", list)
	}
	for id, status := range map[uuid.UUID]client.CardStatus{late.UUID: client.CardStatusGenerated,
		declined.UUID: client.CardStatusGenerated,
		back.UUID:     client.CardStatusAwaitingPayment, parked.UUID: client.CardStatusAwaitingPayment} {
		c, err := newClient(t, s.url, token).GetCard(t.Context(), id)
		if err != nil || c.Status != status || !c.Payment.AmountDue.IsZero() ||
			(c.Payment.URI == "") != (status != client.CardStatusGenerated) {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

// awaitPayments waits for the given state of each payment, and until all paid
// cards are issued.
func (s *server) awaitPayments(t *testing.T, token string, want map[uuid.UUID]client.PaymentState) {
	t.Helper()
	c := newClient(t, s.url, token)
	for end := time.Now().Add(30 * time.Second); len(want) > 0; time.Sleep(50 * time.Millisecond) {
		for id, state := range want {
			got, err := c.GetCard(t.Context(), id)
			if err == nil && got.Payment.State == state &&
				(state != client.PaymentStatePaid || got.Status == client.CardStatusGenerated) {
				delete(want, id)
			} else if time.Now().After(end) {
				t.Fatalf("%+v, %v; want %s", got, err, state)
			}
		}
	}
}
