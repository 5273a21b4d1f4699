package acceptance_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

// A declined card is listed for the operator and retried with a slow supplier.
// card show still works after its credentials were deleted.
func TestCardResolve_DeclinedCard_IsRetried(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: waits for seconds")
	}
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--sandbox-supplier", "declining")
	id := s.order(t, token, "1").UUID
	await(t, waitLimit, "card list --attention to list the card", func() bool {
		return strings.Contains(p.must(t, "card", "list", "--attention"), id.String())
	})
	wantOutput(t, p.must(t, "card", "show", id.String()), "refund_due, attempts 1, the sandbox declines", "supplier",
		"sandbox, asked since 2", "last answer declined, reference -")
	stdout, _, code := p.run("reconcile")
	if code != 3 || strings.Contains(stdout, "doubt: ") {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, stdout,
		"waits: card "+id.String()+": it is paid, but the supplier declined it: retry or refund it, since 2",
		"everything agrees")
	s.stop(t)

	s = p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--sandbox-supplier", "pending")
	retry := []string{"card", "resolve", id.String(), "retry", "--note", "it has stock again"}
	wantOutput(t, p.must(t, retry...), "would ask the supplier again; payment is paid. Nothing was changed.", "--yes")
	wantOutput(t, p.must(t, append(retry, "--yes")...), "recorded: ask the supplier again")
	if _, err := newClient(t, s.url, token).WaitForCard(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, "card", "show", id.String()), "issuing", "done, attempts",
		"last answer issued, reference sandbox-", "card.generated")
	wantOutput(t, p.must(t, append(retry, "--yes")...), "nothing left to do")
	wantOutput(t, p.must(t, "reconcile"), "everything agrees", "1 issued, 1 paid")

	if _, err := rig.OpenSQL(t, url).Exec("DELETE FROM credentials"); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, "card", "show", id.String()), "credentials", "none are kept")
}
