package settle_test

import (
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// paid returns a card whose making was decided.
func (s *shop) paid() *card.Card {
	s.t.Helper()
	c := s.order()
	s.pay(c, coin, 10)
	s.tick()
	return c
}

// again lets the time pass that a deferred intent waits.
func (s *shop) again() {
	s.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if n, err := s.issuer.IssueDue(s.t.Context()); err != nil || n > 0 {
			check(s.t, err)
			return
		}
	}
	s.t.Fatal("the intent did not come back")
}

func TestIssue_NoClearAnswerIsAskedAgainWithTheSameKey(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		s.supplier.fault = func(attempt int, _ *card.Credentials) error {
			if attempt == 1 {
				return errFault // after the card was made
			}
			return nil
		}
		c := s.paid()
		s.settle()
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		s.again()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestIssue_MoneyThatLeavesWhileTheCardIsMadeKeepsItBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		s.mine(30)
		c := s.order()
		s.supplier.fault = func(attempt int, _ *card.Credentials) error {
			if attempt == 1 {
				if err := s.store.SimulatedReorg(s.t.Context(), "monero", 20, true); err != nil {
					return err
				}
				return s.watcher.Tick(s.t.Context())
			}
			return nil
		}
		s.pay(c, coin, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.pay(c, coin, 10)
		s.tick()
		s.again()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestIssue_DeclinedAndDoubtfulCardsWaitForAnOperator(t *testing.T) {
	for name, fault := range map[string]func(int, *card.Credentials) error{
		"declined":           func(int, *card.Credentials) error { return card.ErrDeclined },
		"wrong check digit":  func(_ int, c *card.Credentials) error { c.CardNumber = "4111111111111112"; return nil },
		"not a number":       func(_ int, c *card.Credentials) error { c.CardNumber = "4111-1111-1111"; return nil },
		"no number":          func(_ int, c *card.Credentials) error { c.CardNumber = ""; return nil },
		"expired":            func(_ int, c *card.Credentials) error { c.ExpirationDate = "01/20"; return nil },
		"unreadable date":    func(_ int, c *card.Credentials) error { c.ExpirationDate = "2029-01"; return nil },
		"no code":            func(_ int, c *card.Credentials) error { c.SecurityCode = ""; return nil },
		"dangerous address":  func(_ int, c *card.Credentials) error { c.URL = "javascript:alert(1)"; return nil },
		"address in clear":   func(_ int, c *card.Credentials) error { c.URL = "http://example.com"; return nil },
		"no password for it": func(_ int, c *card.Credentials) error { c.URLPassword = ""; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *shop) {
				s.supplier.fault = fault
				c := s.paid()
				s.settle()
				s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
				s.supplier.fault = nil
				s.settle() // is not asked for again
				s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
				s.doubts = []string{parked}
			})
		})
	}
}

func TestIssue_ACardThatAnotherOrderHasIsNotGivenOut(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		s.supplier.fault = func(_ int, c *card.Credentials) error { c.CardNumber = "4111111111111111"; return nil }
		first := s.paid()
		s.settle()
		second := s.paid()
		s.settle()
		s.want(first, card.Generated, card.Paid, coin, 20)
		s.want(second, card.AwaitingPayment, card.Paid, coin, 10)
		s.doubts = []string{parked}
	})
}

func TestIssue_ManyCardsByTwoReplicasAreMadeOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		var cards []*card.Card
		for range 25 {
			c := s.order()
			s.pay(c, coin, 10)
			cards = append(cards, c)
		}
		s.tick()
		other := s.replica()
		done := make(chan error, 2)
		for _, one := range []*shop{s, other} {
			go func() {
				for {
					if n, err := one.issuer.IssueDue(t.Context()); n == 0 || err != nil {
						done <- err
						return
					}
				}
			}()
		}
		for range 2 {
			check(t, <-done)
		}
		s.tick()
		for _, c := range cards {
			got, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
			check(t, err)
			if got.Status != card.Generated {
				t.Errorf("%s is %s", c.UUID, got.Status)
			}
		}
		s.supplier.mu.Lock()
		defer s.supplier.mu.Unlock()
		for key, attempts := range s.supplier.asked {
			if attempts != 1 {
				t.Errorf("%s was asked for %d times", key, attempts)
			}
		}
	})
}
