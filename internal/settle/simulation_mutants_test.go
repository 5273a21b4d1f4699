package settle_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

var allMutants = flag.Bool("mutants", false,
	"break every rule that TestSimulation_CatchesBrokenRules knows, not just one")

// mutant is a broken rule of the product.
type mutant struct {
	name, file string
	from, to   string // from must occur once
}

// TestSimulation_CatchesBrokenRules breaks each rule in a copy of the product's
// source, and the simulation must fail.
func TestSimulation_CatchesBrokenRules(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: builds this package many times")
	}
	if *oneSeed > 0 {
		t.Skip("left out: one seed is simulated")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("left out: there is no go command to build with")
	}
	mutants := []mutant{
		{"a late transfer delays a card", "../card/payment.go", "case c.enough(firm):",
			"case c.enough(firm) && Confirmed(c, transfers, tip):"},
		{"the key changes with every attempt", "../issue/issue.go", "Request{Key: intent.Key,",
			"Request{Key: fmt.Sprintf(\"%s%02d\", intent.Key[:34], intent.Attempts%100),"},
		{"a transfer that is mined again keeps its height", "../store/transfers.go",
			"height = excluded.height, locked = excluded.locked", "locked = excluded.locked"},

		{"a card with money is canceled", "../store/cancel.go", ` AND payment_state = 'unpaid'
	AND received = 0 AND refunded = 0
	AND NOT EXISTS (SELECT 1 FROM transfers t
		WHERE t.currency = cards.currency AND t.address = cards.address AND t.counted)`, ""},
		{"the payment of a canceled card is forgotten", "../card/payment.go", "case all.kept <= 0 && c.canceled():",
			"case c.canceled():"},
		{"money after a cancellation is in time", "../card/payment.go",
			"if c.canceled() && c.CanceledAt.Before(c.ExpiresAt) {", "if c.CanceledAt.After(c.ExpiresAt) {"},
		{"one confirmation less is enough", "../card/payment.go", "int64(c.ConfirmationsRequired) - 1 }",
			"int64(c.ConfirmationsRequired) - 2 }"},
		{"locked money pays", "../card/payment.go", "tip.Height >= c.readyAt(t) && !t.Locked",
			"tip.Height >= c.readyAt(t)"},
		{"money in the mempool has the height of the rest", "../card/payment.go", "if t.Height == 0 {\n\t\t\treturn 0",
			"if t.Height < 0 {\n\t\t\treturn 0"},
		{"the card waits for the last transfer", "../card/payment.go", "if need <= 0 {", "if need < 0 && t.Height < 0 {"},
		{"a block may be backdated", "pass.go", "if t.FirstSeenAt.Before(cursor.Tip.Time) {", "if t.FirstSeenAt.IsZero() {"},
		{"time goes back", "pass.go", "if v.Tip.Time.Before(cursor.Tip.Time) {", "if v.Tip.Time.IsZero() {"},
		{"late money counts as in time", "../card/payment.go", "t.FirstSeenAt.Before(c.quoteEnd())",
			"!t.FirstSeenAt.Before(c.CreatedAt)"},
		{"any money is enough without a rate", "../card/payment.go", "case firm.late() && c.Coin",
			"case firm.late() && today.USD.Units == 0 || firm.late() && c.Coin"},
		{"nothing is ever reversed", "../card/payment.go", "case c.Status == Generated && all.kept < c.Settled:",
			"case c.Status == Generated && all.kept < 0:"},
		{"a fall of the rate is a surplus", "../card/payment.go", "return max(c.Amount, worth)",
			"return min(c.Amount, worth)"},
		{"refunded money is kept", "../card/payment.go", "s := sum{-c.Refunded, -c.Refunded}", "s := sum{}"},
		{"money that left the chain counts", "pass.go", "\t\tt.Counted = false\n", ""},
		{"a forgetful wallet is trusted", "pass.go", "if t.Height > 0 && t.Height <= v.Kept",
			"if t.Height < 0 && t.Height <= v.Kept"},
		{"a shorter chain is trusted", "pass.go", "if v.Tip.Height < cursor.Tip.Height {", "if v.Tip.Height < 0 {"},
		{"another chain is trusted", "pass.go", `if cursor.Fingerprint != "" && cursor`,
			`if cursor.Fingerprint == "" && cursor`},
		{"miners' clocks are trusted", "pass.go", "v.Tip.Time.After(now)", "v.Tip.Time.After(now.AddDate(9, 0, 0))"},
		{"a payment that left during the issue is not noticed", "../issue/issue.go",
			"if c.State != card.Paid {\n\t\t\t\treturn", "if c.State == \"\" {\n\t\t\t\treturn"},
		{"a card is requested after its payment left", "../issue/issue.go", "case c.State != card.Paid:", "case c.State == \"\":"},
		{"a refund during the issue is accepted", "../operator/resolve.go",
			"case ev.intent != nil && !waits && (c.State == card.Paid || ev.intent.Attempts > 0):",
			"case ev.intent == nil && waits:"},
		{"unconfirmed money is refunded", "../operator/resolve.go", "if amount = min(amount, firm); amount <= 0 {",
			"if amount <= 0 {"},
		{"the time of a payment is when it was mined", "../store/transfers.go", "attributed = excluded.attributed`",
			"attributed = excluded.attributed, first_seen_at = excluded.first_seen_at`"},
		{"a lost lease is not noticed", "../store/leases.go",
			"AND fence = ? AND expires_at > \"+\n\t\t\tt.s.dialect.now+", "AND fence = ? AND expires_at >= 0\"+"},
		{"a card is requested again without a lookup", "../issue/issue.go", "if intent.Asked {",
			"if intent.State == StatePending {"},
		{"a card number may be issued twice", "../issue/issue.go", "[]byte(credentials.CardNumber.Reveal())",
			"[]byte(c.UUID.String())"},
		{"a decision is reported as a payment", "../operator/resolve.go", "if told {", "if told && c == nil {"},
		{"every pass is reported", "../card/payment.go", "if from == to {", "if from == \"\" {"},
		{"accepted money need not stay", "../card/payment.go", "c.Accepted > 0 && s.kept >= c.Accepted", "c.Accepted > 0"},
		{"long locks are not reread", "reread.go", "if cursor.LowestLocked > 0 {", "if cursor.LowestLocked < 0 {"},
		{"few blocks are reread", "reread.go", "since := cursor.Tip.Height - w.cfg.Reread",
			"since := cursor.Tip.Height - 3"},
		{"slices are not reread", "reread.go", "case now.Sub(w.round.at) < w.cfg.CompareEvery:",
			"case w.cfg.CompareEvery > 0:"},
		{"each slice is the first", "reread.go", "if from >= tip {", "if from >= 0 {"},
		{"slices miss the end of a long lock", "reread.go", "Blocks{h, h})", "Blocks{h, h - 1})"},
		{"replaced blocks are not read", "chain.go", "v.Since = min(q.Since, kept)", "v.Since = max(q.Since, kept)"},
		{"the mempool list decides over a block", "pass.go", "known && lingersInMempool(old, t)",
			"known && lingersInMempool(t, t) && old.Height == 0"},
	}
	for _, m := range mutants {
		if source, err := os.ReadFile(m.file); err != nil || strings.Count(string(source), m.from) != 1 {
			t.Errorf("%s: %s must contain %q once: %v", m.name, m.file, m.from, err)
		}
	}
	most := 1000
	if !*allMutants {
		mutants = mutants[:1]
	}
	var group sync.WaitGroup
	next := make(chan mutant)
	for range 2 {
		group.Go(func() {
			for m := range next {
				m.mustFail(t, tool, most)
			}
		})
	}
	for _, m := range mutants {
		next <- m
	}
	close(next)
	group.Wait()
}

// mustFail builds the tests of this package with the broken rule, and runs the
// simulation.
func (m mutant) mustFail(t *testing.T, tool string, seeds int) {
	dir := t.TempDir()
	source, err := os.ReadFile(m.file)
	if err != nil {
		t.Errorf("%s: %v", m.name, err)
		return
	}
	broken, overlay, binary := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json"),
		filepath.Join(dir, "settle.test")
	original, err := filepath.Abs(m.file)
	if err == nil {
		err = os.WriteFile(broken, []byte(strings.Replace(string(source), m.from, m.to, 1)), 0o600)
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(map[string]map[string]string{"Replace": {original: broken}})
	}
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		t.Errorf("%s: %v", m.name, err)
		return
	}
	if out, err := exec.CommandContext(t.Context(), tool, "test", "-overlay", overlay, "-vet=off", "-c", "-o", binary,
		".").CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", m.name, err, out)
		return
	}
	run := exec.CommandContext(t.Context(), binary, "-test.run", "^TestSimulation$", "-seeds", fmt.Sprint(seeds))
	run.Env = append(os.Environ(), "GOMAXPROCS=1") // two run concurrently; one worker runs the seeds in order
	out, err := run.CombinedOutput()
	found := regexp.MustCompile(`(?s): (\d+) histories,.*seed \d+: ([^\n]{0,150})`).FindStringSubmatch(string(out))
	switch {
	case err == nil:
		t.Errorf("%s: not caught in %d histories", m.name, seeds)
	case found == nil:
		t.Errorf("%s: %v\n%s", m.name, err, out)
	default:
		t.Logf("%s: caught after %s histories: %s", m.name, found[1], found[2])
	}
}
