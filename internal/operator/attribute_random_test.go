package operator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// history runs random steps on a fixture.
type history struct {
	*fixture
	random *rand.Rand
	cards  []*card.Card
	steps  []string // names

	attributed int
}

// After random steps of attributions, reorganizations, decisions and issuing,
// the books agree, and the supplier issues no card twice.
func TestAttribute_RandomHistory_BooksAgree(t *testing.T) {
	histories, steps := 6, 200
	if testing.Short() {
		histories = 1
	}
	for seed := range histories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				h := &history{fixture: s, random: rand.New(rand.NewPCG(uint64(seed), 8))}
				h.mine(40)
				for range steps {
					h.step()
					if t.Failed() {
						t.Fatal(strings.Join(h.steps, ", "))
					}
				}
				for key, n := range s.supplier.attempts {
					if n > 1 {
						t.Errorf("the supplier was asked %d times for %s", n, key)
					}
				}
				books, err := s.service.Reconcile(t.Context(), operator.Audit{})
				check(t, err)
				s.discrepancies = undecided(books)
				t.Logf("%d attributed, %+v", h.attributed, books.Coins)
			})
		})
	}
}

func (h *history) step() {
	actions := []struct {
		name string
		do   func()
	}{
		{"order", func() { h.cards = append(h.cards, h.order()) }},
		{"forgotten order", func() { c := h.order(); h.forget(c); h.pay(c, h.randomAmount(), h.random.IntN(12)) }},
		{"payment", func() { h.withRandomCard(func(c *card.Card) { h.pay(c, h.randomAmount(), h.random.IntN(12)) }) }},
		{"attribution", h.attributeAny},
		{"attribution", h.attributeAny},
		{"attribution", h.attributeAny},
		{"blocks", func() { h.mine(1 + h.random.IntN(10)) }},
		{"reorganization", func() {
			err := h.store.SimulatedReorg(h.t.Context(), "monero", 1+h.random.IntN(30), h.random.IntN(3) == 0)
			check(h.t, err)
		}},
		{"pass", h.tick},
		{"pass", h.tick},
		{"issuing", func() { check(h.t, h.issuer.Tick(h.t.Context())) }},
		{"hours", func() { h.now = h.now.Add(2 * time.Hour) }},
		{"rate", func() { h.rates.usd = []string{"150", "100", "200", ""}[h.random.IntN(4)] }},
		{"decision", func() {
			kinds := []operator.ResolutionKind{operator.Accept, operator.Refund, operator.WriteOff, operator.Retry}
			h.withRandomCard(func(c *card.Card) {
				_, _ = h.service.ResolveCard(h.t.Context(),
					operator.Decision{CardUUID: c.UUID, Kind: kinds[h.random.IntN(4)], Note: "x", Operator: "x"})
			})
		}},
	}
	a := actions[h.random.IntN(len(actions))]
	h.steps = append(h.steps, a.name)
	if h.rates.usd == "" && strings.HasSuffix(a.name, "order") {
		return // no quote
	}
	a.do()
	books, err := h.service.Reconcile(h.t.Context(), operator.Audit{})
	check(h.t, err)
	for _, d := range books.Discrepancies {
		h.t.Errorf("after a step %q: %s %s", a.name, d.ID, d.Text)
	}
	for _, kind := range undecided(books) {
		if kind != lost {
			h.t.Errorf("after a step %q: a card is %s", a.name, kind)
		}
	}
}

func (h *history) randomAmount() card.Amount { return coin * card.Amount(1+h.random.IntN(5)) / 4 }

func (h *history) withRandomCard(f func(*card.Card)) {
	if len(h.cards) > 0 {
		f(h.cards[h.random.IntN(len(h.cards))])
	}
}

// attributeAny decides anything of any transfer.
func (h *history) attributeAny() {
	strays, err := h.store.Strays(h.t.Context(), 20)
	check(h.t, err)
	if len(strays) == 0 {
		return
	}
	a := strays[h.random.IntN(len(strays))]
	d := h.decision(a, operator.GiveBack)
	switch h.random.IntN(4) {
	case 0, 1:
		h.withRandomCard(func(c *card.Card) { d = h.toCard(a, c) })
	case 2:
		d = h.toNew(a)
	}
	done, err := h.service.AttributeTransfer(h.t.Context(), d)
	allowed := []error{operator.ErrNotConfirmed, operator.ErrLeftChain, operator.ErrAttributed, operator.ErrIssued,
		operator.ErrPaid}
	switch {
	case err == nil && !done.Unchanged:
		h.attributed++
		h.steps[len(h.steps)-1] = fmt.Sprintf("attribution (%s, %s)", d.Kind, done.After)
		if d.Kind == operator.ToNewCard {
			h.cards = append(h.cards, done.Card)
		}
	case err != nil && !slices.ContainsFunc(allowed, func(e error) bool { return errors.Is(err, e) }):
		h.t.Errorf("%s: %v", d.Kind, err)
	}
}
