package issue_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// The suppliers that a process knows change while cards are issued.

func TestRoute_SupplierRemoved_ParkedIfItMayHaveIssued(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(3, 0)
		a, b := m.suppliers[0], m.suppliers[1]
		silent := func(context.Context, issue.Request) (issue.Answer, error) { return issue.Answer{}, errFault }
		isBusy := func(context.Context, issue.Request) (issue.Answer, error) { return issue.Answer{}, &issue.BusyError{} }
		// one after the other: while a busy supplier is paused, the other cards
		// wait
		asked := func(sayA, sayB handler) *card.Card {
			a.submit, b.submit = sayA, sayB
			c := m.paid()
			m.work()
			r.exec("UPDATE intents SET due_at = due_at + 3600000") // on a slow machine, it could become due before the next one
			return c
		}
		unclear := asked(silent, silent)
		next := asked(declined, silent)
		refused := asked(declined, isBusy) // not issued by any supplier
		busy := asked(isBusy, isBusy)
		for c, want := range map[*card.Card]string{unclear: "a", next: "ab", refused: "ab", busy: "a"} {
			if got := m.requestedFrom(c); got != want {
				t.Fatalf("asked %q, want %q", got, want)
			}
		}
		all := m.routes
		m.routes = issue.Routes{all[2]}
		m.restart()
		m.due()
		m.work()
		for c, want := range map[*card.Card]string{unclear: "", busy: "c", refused: "c", next: ""} {
			if got := m.issuedBy(c); got != want {
				t.Errorf("issued by %q, want %q", got, want)
			}
		}
		m.want(unclear, issue.StateParked, "unknown", strings.Replace(gone, "press", "a", 1))
		m.want(next, issue.StateParked, "unknown", strings.Replace(gone, "press", "b", 1))
		m.routes, a.submit, b.submit = all, nil, nil
		m.restart()
		m.retry(unclear)
		m.retry(next)
		m.work()
		if m.issuedBy(unclear) != "a" || m.issuedBy(next) != "b" {
			t.Errorf("issued by %q and %q", m.issuedBy(unclear), m.issuedBy(next))
		}
	})
}

// While processes with different suppliers run at the same time, a card is
// requested only by processes that know its supplier.
func TestRoute_SupplierUnknownToProcess_LeftToOthers(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(2, 0)
		a, b := m.suppliers[0], m.suppliers[1]
		a.submit = declined
		b.submit = func(context.Context, issue.Request) (issue.Answer, error) { return issue.Answer{}, errFault }
		c := m.paid()
		m.work()
		all := m.routes
		m.routes = issue.Routes{all[0]}
		m.restart()
		m.exec("UPDATE intents SET due_at = opened_at")
		m.work()
		m.want(c, issue.StateOpen, "unknown", "the supplier gave no clear answer")
		if m.requestedFrom(c) != "ab" || a.requests(c) != 1 {
			t.Errorf("asked %q, a %d times", m.requestedFrom(c), a.requests(c))
		}
		m.routes, b.submit = all, nil
		m.restart()
		m.work()
		m.want(c, issue.StateDone, "issued", "")
		if m.issuedBy(c) != "b" {
			t.Errorf("issued by %q", m.issuedBy(c))
		}
	})
}
