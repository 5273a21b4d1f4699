package issue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

const outOfStock = "out of stock"

// routeFixture is a process with several suppliers. Each has its own ledger and
// issuer.
type routeFixture struct {
	*fixture
	suppliers []*fakeSupplier
	routes    issue.Routes
	patience  time.Duration
	issuers   []*issue.Issuer
}

// withSuppliers returns a process with n suppliers, "a", "b" and so on, that
// issue cards of every amount.
func (r *fixture) withSuppliers(n int, patience time.Duration) *routeFixture {
	r.t.Helper()
	m := &routeFixture{fixture: r, patience: patience}
	for i := range n {
		m.suppliers = append(m.suppliers,
			&fakeSupplier{name: string(rune('a' + i)), any: true, cards: map[string]card.Credentials{}})
		m.routes = append(m.routes, issue.Route{Supplier: m.suppliers[i], Min: card.MinUSD, Max: card.MaxUSD})
	}
	m.restart()
	return m
}

// restart starts a process with the suppliers in m.routes.
func (m *routeFixture) restart() {
	m.t.Helper()
	m.issuers = nil
	m.with = func(c *issue.Config) { c.Routes, c.Patience = m.routes, m.patience }
	m.start()
	for i := range m.routes {
		m.issuers = append(m.issuers, m.issuerOf(i))
	}
}

// work runs every issuer until nothing is due.
func (m *routeFixture) work() {
	m.t.Helper()
	for again := true; again; {
		again = false
		for _, i := range m.issuers {
			n, err := i.IssueDue(m.t.Context())
			check(m.t, err)
			again = again || n > 0
		}
	}
}

// requestedFrom returns the names of the suppliers that received a request for a card,
// in the order of the test's routes.
func (m *routeFixture) requestedFrom(c *card.Card) (names string) {
	for _, p := range m.suppliers {
		if p.requests(c) > 0 {
			names += p.name
		}
	}
	return names
}

// issuedBy returns the names of the suppliers that issued a card.
func (m *routeFixture) issuedBy(c *card.Card) (names string) {
	for _, p := range m.suppliers {
		if _, made := p.cards[c.UUID.String()]; made {
			names += p.name
		}
	}
	return names
}

// wantRefundsDue checks the number of refund_due events.
func (m *routeFixture) wantRefundsDue(n int) {
	m.t.Helper()
	if got := m.count("events WHERE type = 'card.refund_due'"); got != n {
		m.t.Errorf("%d refunds are due, want %d", got, n)
	}
}

// age moves the first requests d into the past.
func (r *fixture) age(d time.Duration) {
	r.exec(fmt.Sprintf("UPDATE intents SET opened_at = opened_at - %d", d.Milliseconds()))
}

// With every combination of answers, a supplier is asked only after each one
// before it clearly declined, and no two issue the same card.
func TestRoute_NextSupplier_OnlyAfterClearRefusal(t *testing.T) {
	const (
		issues = iota
		isPending
		declines
		declinesForNow
		isSilent
		isSilentButMadeIt
		saysNothing
		kinds
	)
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if testing.Short() && n == 3 {
				t.Skip("left out by -short: issues hundreds of cards")
			}
			onEach(t, func(t *testing.T, r *fixture) {
				m := r.withSuppliers(n, time.Hour)
				m.store.patient = true // otherwise the unanswered ones would retry in a row and pause their supplier
				combinations := 1
				for range n {
					combinations *= kinds
				}
				cards := m.manyPaid(combinations)
				scripts := map[string][]int{}
				for x, c := range cards {
					for range n { // the first supplier's answers alternate most, so that it is never paused
						scripts[c.UUID.String()], x = append(scripts[c.UUID.String()], x%kinds), x/kinds
					}
				}
				for i, p := range m.suppliers {
					p.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
						switch scripts[q.Key][i] {
						case issues:
							return p.make(ctx, q)
						case isPending:
							return issue.Answer{Outcome: issue.Pending, Reference: "r"}, nil
						case declines, declinesForNow:
							return issue.Answer{Outcome: issue.Declined, Reason: outOfStock, Temporary: scripts[q.Key][i] == declinesForNow},
								nil
						case isSilentButMadeIt:
							_, _ = p.make(ctx, q)
							return issue.Answer{}, errFault
						case isSilent:
							return issue.Answer{}, errFault
						}
						return issue.Answer{}, nil
					}
					p.lookup = func(ctx context.Context, q issue.Request) (issue.Answer, error) { return issue.Answer{}, errFault }
				}
				m.work()
				refunds := 0
				for _, c := range cards {
					answers, last := scripts[c.UUID.String()], 0
					for last < n-1 && (answers[last] == declines || answers[last] == declinesForNow) {
						last++
					}
					if want := "abc"[:last+1]; m.requestedFrom(c) != want {
						t.Errorf("%v: asked %q, want %q", answers, m.requestedFrom(c), want)
					}
					record, err := m.db.CardDetail(t.Context(), c.UUID)
					check(t, err)
					want := map[int]issue.State{issues: issue.StateDone, isPending: issue.StatePending,
						declines: issue.StateRefundDue, declinesForNow: issue.StateOpen,
						isSilent: issue.StateOpen, isSilentButMadeIt: issue.StateOpen, saysNothing: issue.StateOpen}[answers[last]]
					if answers[last] == declines && slices.Contains(answers[:last], declinesForNow) {
						want = issue.StateOpen // a temporary refusal: retried later
					}
					if want == issue.StateRefundDue {
						refunds++
					}
					if record.Intent.State != string(want) {
						t.Errorf("%v: issuing is %s, want %s", answers, record.Intent.State, want)
					}
				}
				m.wantRefundsDue(refunds)
				for _, p := range m.suppliers { // from here on all of them answer
					p.submit, p.lookup = nil, nil
				}
				for range 3 {
					m.clock.pass(time.Hour)
					m.due()
					m.work()
				}
				for _, c := range cards {
					answers := scripts[c.UUID.String()]
					last := slices.IndexFunc(answers, func(kind int) bool { return kind != declines && kind != declinesForNow })
					want := ""
					switch {
					case last >= 0: // the supplier that may have issued it
						want = "abc"[last : last+1]
					case slices.Contains(answers, declinesForNow): // both were asked once more
						want = "a"
					}
					if got := m.issuedBy(c); got != want {
						t.Errorf("%v: issued by %q, want %q", answers, got, want)
					}
				}
			})
		})
	}
}

func TestRoute_TemporaryRefusal_RetriedWithinPatience(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(2, time.Hour)
		for i, p := range m.suppliers {
			p.submit = answering(issue.Answer{Outcome: issue.Declined, Reason: outOfStock, Temporary: i == 0}, nil)
		}
		c := m.paid()
		m.work()
		m.want(c, issue.StateOpen, "", "a: out of stock; b: out of stock")
		m.wantWait(c, 500*time.Millisecond, 2*time.Second)
		m.due()
		m.age(59 * time.Minute)
		m.work()
		if i := m.want(c, issue.StateOpen, "", "a: out of stock; b: out of stock"); i.OpenedAt == nil ||
			time.Since(*i.OpenedAt) < 59*time.Minute {
			t.Errorf("asked since %v", i.OpenedAt)
		}
		if a, b := m.suppliers[0].requests(c), m.suppliers[1].requests(c); a != 2 || b != 2 {
			t.Errorf("asked %d and %d times", a, b)
		}
		m.wantRefundsDue(0)
		m.due()
		m.age(time.Minute)
		m.work()
		i := m.want(c, issue.StateRefundDue, "declined", "a: out of stock; b: out of stock")
		var refusals []string
		for _, f := range i.Refusals {
			refusals = append(refusals, fmt.Sprint(f.Supplier, f.Temporary))
		}
		if diff := cmp.Diff([]string{"atrue", "bfalse"}, refusals); diff != "" {
			t.Error(diff)
		}
		m.due()
		m.work()
		m.wantRefundsDue(1)
		m.retry(c) // starts over
		m.work()
		m.want(c, issue.StateOpen, "", "a: out of stock; b: out of stock")
		m.suppliers[0].submit = nil
		m.due()
		m.work()
		m.want(c, issue.StateDone, "issued", "")
		m.wantRefundsDue(1)
	})
}

func TestRoute_FirstSupplier_ByPriorityAndAmount(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(3, 0)
		m.routes[0].Max, m.routes[1].Min, m.routes[1].Max = 100_00, 100_00, 200_00
		m.restart()
		for usd, want := range map[card.USD]string{50_00: "a", 100_00: "a", 100_01: "b", 200_00: "b", 200_01: "c",
			750_00: "c"} {
			c := m.paidBy(m.account, usd)
			m.work()
			if m.requestedFrom(c) != want || m.issuedBy(c) != want {
				t.Errorf("%s dollars: asked %q, issued by %q, want %q", usd, m.requestedFrom(c), m.issuedBy(c), want)
			}
		}
		for _, p := range m.suppliers[:2] {
			p.submit = declined
		}
		for usd, want := range map[card.USD]string{50_00: "ac", 100_00: "abc", 150_00: "bc", 300_00: "c"} {
			c := m.paidBy(m.account, usd)
			m.work()
			if m.requestedFrom(c) != want || m.issuedBy(c) != "c" {
				t.Errorf("%s dollars: asked %q, issued by %q, want %q", usd, m.requestedFrom(c), m.issuedBy(c), want)
			}
		}
	})
}

func TestRoute_UncoveredAmount_RetriedWithinPatience(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		const nobody = "no supplier makes cards of 300 US dollars"
		m := r.withSuppliers(2, time.Hour)
		m.routes[0].Max, m.routes[1].Max = 100_00, 200_00
		m.restart()
		c := m.paidBy(m.account, 300_00)
		m.work()
		if i := m.want(c, issue.StateOpen, "", nobody); i.FirstAskedAt != nil || i.Supplier != "" {
			t.Errorf("%+v", i)
		}
		m.due()
		m.age(time.Hour)
		m.work()
		m.want(c, issue.StateRefundDue, "", nobody)
		m.wantRefundsDue(1)
		if m.requestedFrom(c) != "" {
			t.Errorf("asked %q", m.requestedFrom(c))
		}
		m.routes[1].Max = 300_00
		m.restart()
		m.retry(c)
		m.work()
		m.want(c, issue.StateDone, "issued", "")
		if m.issuedBy(c) != "b" {
			t.Errorf("issued by %q", m.issuedBy(c))
		}
	})
}

// A retry does not return to the supplier that declined if its route no longer
// covers the amount.
func TestRoute_Retry_RespectsAmounts(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(1, 0)
		m.suppliers[0].submit, m.suppliers[0].lookup = declined, declined
		c := m.paidBy(m.account, 300_00)
		m.work()
		m.want(c, issue.StateRefundDue, "declined", outOfStock)
		m.routes[0].Max = 200_00
		m.restart()
		m.retry(c)
		m.suppliers[0].calls = nil
		m.work()
		m.want(c, issue.StateRefundDue, "declined", outOfStock)
		if diff := cmp.Diff([]string{"look up"}, m.suppliers[0].calls); diff != "" {
			t.Error(diff)
		}
	})
}

// Requests contain the number of earlier refusals, so that a supplier that
// repeats its answer to a key can be sent another key.
func TestRoute_Request_CountsEarlierRefusals(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(2, 0)
		var declines []int
		for _, p := range m.suppliers {
			p.submit = func(_ context.Context, q issue.Request) (issue.Answer, error) {
				declines = append(declines, q.Declines)
				return issue.Answer{Outcome: issue.Declined, Reason: outOfStock}, nil
			}
			p.lookup = declined
		}
		c := m.paid()
		m.work()
		m.retry(c)
		m.work()
		if diff := cmp.Diff([]int{0, 1, 2, 3}, declines); diff != "" {
			t.Error(diff)
		}
		m.wantRefundsDue(2) // one event for each time that no supplier issues it
	})
}

// A process dies before it stores a refusal. The next one looks the refusal up,
// and asks the next supplier once.
func TestRoute_RefusalNotStored_LookedUp(t *testing.T) {
	for name, lookup := range map[string]handler{"and remembered": declined, "and forgotten": nil} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				m := r.withSuppliers(2, 0)
				a, b := m.suppliers[0], m.suppliers[1]
				a.submit, a.lookup = declined, lookup
				c := m.paid()
				m.store.saveFails = card.ErrUnavailable
				if _, err := m.issuers[0].IssueDue(t.Context()); err == nil {
					t.Error("no error")
				}
				m.restart()
				m.due()
				m.work()
				want := []string{"submit", "look up"}
				if lookup == nil {
					want = append(want, "submit")
				}
				if diff := cmp.Diff(want, a.calls); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"submit"}, b.calls); diff != "" || m.issuedBy(c) != "b" {
					t.Errorf("issued by %q: %s", m.issuedBy(c), diff)
				}
			})
		})
	}
}

// While the payment is off the chain, no refund is due and no event is sent.
// The suppliers are asked once the payment is back.
func TestRoute_PaymentLeftChain_RefundNotDue(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		m := r.withSuppliers(1, 0)
		p := m.suppliers[0]
		c := m.paid()
		p.submit = after(func() { m.assess(c, card.Unpaid) }, declined)
		p.lookup = declined
		m.work()
		m.want(c, issue.StateOpen, "declined", unpaid)
		m.wantRefundsDue(0)
		m.due()
		m.work()
		if n := p.requests(c); n != 1 {
			t.Errorf("asked %d times", n)
		}
		p.submit = declined
		m.assess(c, card.Paid)
		m.work()
		m.want(c, issue.StateRefundDue, "declined", outOfStock)
		m.wantRefundsDue(1)
		m.retry(c)
		p.submit = nil
		m.work()
		m.want(c, issue.StateDone, "issued", "")
	})
}

// A card whose payment left the chain after the claim is neither requested nor
// looked up.
func TestIssue_PaymentLeftChain_NoRequestSent(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards := r.manyPaid(12)
		left := func(c *card.Card) bool { return slices.Index(cards, c)%2 == 0 }
		leave := func() error {
			for _, c := range cards {
				if left(c) {
					r.assess(c, card.Unpaid)
				}
			}
			return nil
		}
		for round := range 2 { // submit, then look up
			r.supplier.submit, r.supplier.lookup = pending, pending
			r.store.reading = leave
			r.issue(12)
			for _, c := range cards {
				want := round + 1
				if left(c) {
					want = round // counted from the payment
				}
				if n := r.supplier.requests(c); n != want {
					t.Errorf("round %d: asked %d times, want %d (payment left the chain: %t)", round, n, want, left(c))
				}
			}
			r.store.reading = nil
			for _, c := range cards {
				r.assess(c, card.Paid)
			}
			if round == 0 { // submit the other cards
				r.exec("UPDATE intents SET due_at = 0 WHERE answer IS NULL")
				r.issue(6)
			}
			r.due()
		}
	})
}

func TestIssue_ManyCards_AccountsTakeTurns(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		other := r.newAccount("another shop")
		many := 1000
		if testing.Short() {
			many = 200
		}
		r.manyPaid(many)
		r.exec("UPDATE intents SET due_at = 0")
		c := r.paidBy(other, 150_50) // last of all cards
		r.issue(16)
		r.wantCard(c)
		if n := r.count("cards WHERE status = 'generated'"); n != 16 {
			t.Errorf("%d cards were issued", n)
		}
	})
}
