package supplier_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
)

func TestMain(m *testing.M) { rig.Main(m) }

// fixture has paid orders and a fake Stripe.
type fixture struct {
	*testing.T
	stripe   *fakeStripe
	supplier *supplier.Stripe
	db       *store.Store
	beside   *sql.DB
	vault    *vault.Vault
	issuer   *issue.Issuer
	account  uuid.UUID
	log      bytes.Buffer
	waited   atomic.Int64 // time without requests to Stripe, in nanoseconds
}

// inShop runs a test on every database. At the end it checks that no card
// number was logged.
func inShop(t *testing.T, f func(s *fixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) {
		s := &fixture{T: t, stripe: newFakeStripe(t), db: storetest.Open(t, url), beside: rig.OpenSQL(t, url),
			vault: vaulttest.New(t)}
		a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "shop", CreatedAt: time.Now()}
		s.check(s.db.InsertAccount(t.Context(), a))
		s.account, s.supplier = a.ID, s.stripe.supplier(t)
		var err error
		s.issuer, err = issue.New(s.db, s.vault, issue.Wake{}, slog.New(slog.NewTextHandler(&s.log, nil)),
			issue.Config{Routes: issue.Only(s.supplier),
				Now: func() time.Time { return time.Now().Add(time.Duration(s.waited.Load())) }})
		s.check(err)
		f(s)
		for _, c := range s.stripe.all() {
			if bytes.Contains(s.log.Bytes(), []byte(c["number"].(string))) {
				t.Errorf("the number of %s is in the log", c.id())
			}
		}
		if bytes.Contains(s.log.Bytes(), []byte(stripeCanary)) {
			t.Errorf("text from Stripe is in the log: %s", s.log.Bytes())
		}
	})
}

func (s *fixture) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// order returns a paid order.
func (s *fixture) order() *card.Card {
	s.Helper()
	c := &card.Card{UUID: uuid.Must(uuid.NewV7()), AccountID: s.account, CreatedAt: time.Now(), USD: 150_50,
		Coin: chain.Currencies()[0], Amount: 1e12,
		Address:   uuid.NewString(),
		Rate:      card.Rate{USD: card.Decimal{Units: 150_00000000, Scale: card.RateScale}, At: time.Now(), Source: "fixed"},
		ExpiresAt: time.Now().Add(time.Hour), ConfirmationsRequired: 10}
	_, err := s.db.InsertCard(s.Context(), c, 0)
	s.check(err)
	s.check(s.db.SettleTx(s.Context(), func(tx settle.Tx) error {
		a := card.Assessment{State: card.Paid, Received: c.Amount, Settled: c.Amount}
		return tx.SaveVerdicts(s.Context(), []card.Verdict{{Card: c, Assessment: a, Issue: true}})
	}))
	return c
}

// issue makes all open intents due, attempts each once, and returns their
// number.
func (s *fixture) issue() int {
	s.Helper()
	s.exec("UPDATE intents SET due_at = 0")
	s.waited.Add(int64(10 * time.Minute))
	n, err := s.issuer.IssueDue(s.Context())
	s.check(err)
	return n
}

func (s *fixture) exec(query string) {
	s.Helper()
	_, err := s.beside.Exec(query)
	s.check(err)
}

// pass advances the clocks of Stripe and the intents.
func (s *fixture) pass(d time.Duration) {
	s.Helper()
	s.stripe.pass(d)
	s.exec(fmt.Sprintf("UPDATE intents SET first_asked_at = first_asked_at - %d", d.Milliseconds()))
}

// die claims the open intents like a process that dies after its request to
// Stripe, or before it.
func (s *fixture) die(asked bool) {
	s.Helper()
	s.exec("UPDATE intents SET due_at = 0")
	intents, err := s.db.ClaimIntents(s.Context(),
		issue.Claim{Supplier: s.supplier.Name(),
			Shares: []issue.Share{{Supplier: s.supplier.Name(), Min: card.MinUSD, Max: card.MaxUSD}}}, 16, time.Minute)
	s.check(err)
	for _, i := range intents {
		if asked && !i.Asked {
			_, _ = s.supplier.Submit(s.Context(), issue.Request{Key: i.Key, USD: 150_50})
		}
	}
}

func (s *fixture) record(c *card.Card) operator.IntentRecord {
	s.Helper()
	record, err := s.db.CardDetail(s.Context(), c.UUID)
	s.check(err)
	return *record.Intent
}

// wantCard compares an order's card with Stripe's only card.
func (s *fixture) wantCard(c *card.Card) {
	s.Helper()
	made := s.stripe.of(c.UUID.String())
	if i := s.record(c); i.State != string(issue.StateDone) || len(made) != 1 {
		s.Errorf("issuing is %s, %s, %q; Stripe created %d cards", i.State, i.Answer, i.Reason, len(made))
		return
	}
	stored, err := s.db.CardByUUID(s.Context(), c.AccountID, c.UUID)
	s.check(err)
	got, err := s.vault.OpenCredentials(c.UUID, c.AccountID, *stored.Sealed)
	s.check(err)
	if got.CardNumber.Reveal() != made[0]["number"] || got.SecurityCode.Reveal() != made[0]["cvc"] ||
		made[0].limit()["amount"] != 150_50 {
		s.Error("the stored card is another one")
	}
}

func TestStripe_PaidOrder_GetsCard(t *testing.T) {
	inShop(t, func(s *fixture) {
		c := s.order()
		s.issue()
		s.wantCard(c)
		if diff := cmp.Diff([]string{"create", "retrieve"}, s.stripe.calls()); diff != "" {
			s.Error(diff)
		}
		s.issue()
		if calls := s.stripe.calls(); len(calls) > 0 {
			s.Errorf("further requests: %s", calls)
		}
	})
}

// Each fault occurs once. The second attempt is at once or a day later, when
// the key is forgotten and the card must still be found.
func TestStripe_AnyFailure_IssuesOneCard(t *testing.T) {
	for name, tt := range map[string]struct {
		fail   map[string][]string
		until  time.Duration // time until the second attempt
		state  issue.State
		reason string
		made   int
	}{
		"the answer was lost": {map[string][]string{"create": {"cut"}}, 0, issue.StateDone, "", 1},
		"the answer was lost for a day": {map[string][]string{"create": {"cut"}}, 25 * time.Hour, issue.StateDone, "",
			1},
		"half an answer": {map[string][]string{"create": {"half"}}, 25 * time.Hour, issue.StateDone, "",
			1},
		"500, created": {map[string][]string{"create": {"created, failed"}}, 0, issue.StateDone, "", 1},
		"500, created, for a day": {map[string][]string{"create": {"created, failed"}}, 25 * time.Hour,
			issue.StateDone, "", 1},
		"it can't be read": {map[string][]string{"retrieve": {"failed"}}, 0, issue.StateDone, "", 1},
		"it can't be read for a day": {map[string][]string{"retrieve": {"cut"}}, 25 * time.Hour, issue.StateDone,
			"", 1},
		"never asked": {map[string][]string{"create": {"unread"}}, 0, issue.StateDone, "", 1},
		"never asked, for a day": {map[string][]string{"create": {"unread"}}, 25 * time.Hour, issue.StateParked,
			"the supplier does not know the request, and may have forgotten it: ask the supplier, then retry or refund", 0},
		"another is asking": {map[string][]string{"create": {"in use"}}, 0, issue.StateDone, "", 1},
		"too many requests": {map[string][]string{"create": {"busy"}}, 0, issue.StateDone, "", 1},
		"the key was revoked for an hour": {map[string][]string{"create": {"wrong key"}}, time.Hour, issue.StateDone, "",
			1},
		"declined": {map[string][]string{"create": {"declined"}}, 0, issue.StateRefundDue,
			"Stripe declined, card_error, code card_declined, decline code do_not_honor", 0},
		"the list can't be read": {map[string][]string{"create": {"cut"}, "list": {"down"}}, 0, issue.StateOpen,
			"the supplier gave no clear answer", 1},
		"the list can't be read, for a day": {map[string][]string{"create": {"cut"}, "list": {"no end"}}, 25 * time.Hour,
			issue.StateOpen, "the supplier gave no clear answer", 1},
		"500 is the answer for a day": {map[string][]string{"create": {"failed"}}, 22 * time.Hour, issue.StateOpen,
			"the supplier gave no clear answer", 0},
	} {
		t.Run(name, func(t *testing.T) {
			inShop(t, func(s *fixture) {
				c := s.order()
				for operation, faults := range tt.fail {
					s.stripe.fail(operation, faults...)
				}
				s.issue()
				s.pass(tt.until)
				s.issue()
				i := s.record(c)
				if made := s.stripe.of(c.UUID.String()); i.State != string(tt.state) || i.Reason != tt.reason ||
					len(made) != tt.made || s.stripe.total() != tt.made {
					s.Errorf("issuing is %s, %q; Stripe created %d", i.State, i.Reason, s.stripe.total())
				}
				for range 3 {
					s.issue()
				}
				switch {
				case s.record(c).State == string(issue.StateDone):
					s.wantCard(c)
				case tt.made == 1:
					s.Error("no card at the end")
				}
			})
		})
	}
}

func TestStripe_WrongCard_IsLeftToOperator(t *testing.T) {
	for reason, change := range map[string]func(fakeCard){
		"the supplier gave a card of 150.49 US dollars, not 150.50": func(c fakeCard) {
			c.limit()["amount"] = 150_49
		},
		"the card at Stripe is not in US dollars": func(c fakeCard) {
			c["currency"] = "eur"
		},
		"the card is not active at Stripe: activate it there, then retry": func(c fakeCard) {
			c["status"] = "inactive"
		},
		"the supplier gave a card that is expired, or whose expiration date can't be read": func(c fakeCard) {
			c["exp_year"] = 1999
		},
	} {
		t.Run(reason, func(t *testing.T) {
			inShop(t, func(s *fixture) {
				c := s.order()
				s.stripe.fail("retrieve", "busy")
				s.issue()
				made := s.stripe.all()[0]
				before := encode(made, "number", "cvc")
				change(made)
				s.issue()
				if i := s.record(c); i.State != string(issue.StateParked) || i.Reason != reason {
					s.Errorf("issuing is %s, %q", i.State, i.Reason)
				}
				if bytes.Equal(before, encode(made, "number", "cvc")) || s.stripe.total() != 1 {
					s.Errorf("%d were created", s.stripe.total())
				}
			})
		})
	}
}

// Every call may fail at any time, processes die, and days pass. The cards are
// counted at Stripe.
func TestStripe_RandomHistories_IssueOneCard(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: lives through a long history")
	}
	faults := map[string][]string{
		"create": {"cut", "half", "garbage", "empty", "failed", "created, failed", "unread", "busy", "locked", "in use",
			"wrong key", "down", "moved", "proxy's 400"},
		"retrieve": {"cut", "busy", "wrong key", "down", "garbage", "empty"},
		"list":     {"cut", "half", "busy", "wrong key", "down", "empty", "stuck", "no end", "no list", "null"},
	}
	inShop(t, func(s *fixture) {
		s.stripe.failBy(func(operation string) string {
			if all := faults[operation]; len(all) > 0 && rand.IntN(3) > 0 {
				return all[rand.IntN(len(all))]
			}
			return ""
		})
		var orders []*card.Card
		for range 60 {
			orders = append(orders, s.order())
			switch rand.IntN(12) {
			case 0:
				s.pass(time.Duration(rand.IntN(30)) * time.Hour)
			case 1:
				s.die(true)
			case 2:
				s.die(false)
			default:
				s.issue()
			}
		}
		s.stripe.failBy(nil)
		s.pass(48 * time.Hour) // all keys are forgotten
		for range 20 {
			s.issue()
		}
		states := map[string]int{}
		for _, c := range orders {
			made, state := s.stripe.of(c.UUID.String()), s.record(c).State
			states[state]++
			if state == string(issue.StateParked) && len(made) > 0 { // the operator knows that there is no card
				s.Errorf("%s got %d cards, and is %s", c.UUID, len(made), state)
			}
		}
		if states["done"] < 1 || states["parked"] < 1 || states["done"]+states["parked"] != len(orders) {
			s.Errorf("%v", states)
		}
		for _, c := range orders {
			if s.record(c).State == string(issue.StateParked) {
				s.check(s.db.OperatorTx(s.Context(), func(tx operator.Tx) error { return tx.ReopenIntent(s.Context(), c.UUID) }))
			}
		}
		for s.issue() > 0 {
		}
		for _, c := range orders {
			s.wantCard(c)
		}
		asked := map[string]int{}
		for _, operation := range s.stripe.calls() {
			asked[operation]++
		}
		s.Logf("%v; %d orders and %d cards; asked %v", states, len(orders), s.stripe.total(), asked)
		if s.stripe.total() != len(orders) {
			s.Errorf("%d cards for %d orders", s.stripe.total(), len(orders))
		}
	})
}
