package order_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/settle"
)

// watch returns a watcher of the simulated chain, which has created addresses.
func (s *fixture) watch() *settle.Watcher {
	s.t.Helper()
	nobody, clock := func() {}, func() time.Time { return s.now }
	w, err := settle.New(s.db, s.rates, s.simulated(),
		settle.Wake{Pass: nobody, Orders: nobody, Issuer: nobody, Sender: nobody}, slog.New(slog.DiscardHandler),
		settle.Config{PoolSize: 40, FillBatch: 40, LeaseTTL: time.Minute, Now: clock})
	check(s.t, err)
	check(s.t, w.Tick(s.t.Context()))
	return w
}

func (s *fixture) simulated() *simulated.Chain {
	return simulated.New(monero, s.db, func() time.Time { return s.now })
}

// onSimulated adds a simulated chain of monero, and a watcher that runs when it
// is woken.
func onSimulated() setup {
	var watcher *settle.Watcher
	return setup{
		sandbox: func(s *fixture) map[string]order.Sandbox {
			watcher = s.watch()
			return map[string]order.Sandbox{"monero": s.simulated()}
		},
		wake: func(s *fixture) {
			s.woken++
			check(s.t, watcher.Tick(s.t.Context()))
		},
	}
}

// onSandbox runs a test on every database, with a simulated chain.
func onSandbox(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) { f(t, open(t, url, onSimulated())) })
}

func TestSimulatePayment_PaysAmountDue(t *testing.T) {
	onSandbox(t, func(t *testing.T, s *fixture) {
		c := s.create("150", "")
		s.woken = 0
		one, none := 1, 0
		for _, tt := range []struct {
			pay           string // "" for the amount due
			confirmations *int
			received      card.Amount
			state         card.PaymentState
			confirmed     int64
		}{
			{"0.25", &none, coin / 4, card.Underpaid, 0},
			{"0.5", &one, coin * 3 / 4, card.Underpaid, 1},
			{"", &none, coin, card.Detected, 0},
			{"0.000000000001", &one, coin + 1, card.Confirming, 1},
		} {
			var p order.SimulatedPayment
			if tt.pay != "" {
				p.Amount = new(card.Decimal)
				check(t, p.Amount.UnmarshalText([]byte(tt.pay)))
			}
			p.Confirmations = tt.confirmations
			got, err := s.orders.SimulatePayment(t.Context(), s.account, c.UUID, p)
			check(t, err)
			if got.Received != tt.received || got.State != tt.state || got.Confirmations() != tt.confirmed {
				t.Errorf("%q: received %d, %s, %d confirmations; want %d, %s, %d", tt.pay, got.Received, got.State,
					got.Confirmations(), tt.received, tt.state, tt.confirmed)
			}
		}
		if s.woken != 4 {
			t.Errorf("the watcher was woken %d times, want once for each payment", s.woken)
		}
	})
}

func TestSimulatePayment_InvalidAmount_IsRefused(t *testing.T) {
	onSandbox(t, func(t *testing.T, s *fixture) {
		c := s.create("150", "")
		s.stock("pebble", 40)
		other, _, err := s.orders.CreateCard(t.Context(), s.account, s.check("150", "pebble"), "")
		check(t, err)
		for name, tt := range map[string]struct {
			account, card uuid.UUID
			amount        card.Decimal
			want          *card.Error
		}{
			"no coins": {s.account, c.UUID, card.Decimal{},
				card.ErrInvalidRequest.WithFields(card.FieldError{Pointer: "/amount", Detail: "must be more than 0"})},
			"too many decimals": {s.account, c.UUID, card.Decimal{Units: 1, Scale: 13},
				card.ErrInvalidRequest.WithFields(card.FieldError{Pointer: "/amount", Detail: "must have at most 12 decimals"})},
			"too much": {s.account, c.UUID, card.Decimal{Units: 1 << 40},
				card.ErrInvalidRequest.WithFields(card.FieldError{Pointer: "/amount", Detail: "is too large"})},
			"no card": {s.account, uuid.New(), card.Decimal{Units: 1},
				card.ErrNotFound.WithMessage("Your account has no card with this uuid.")},
			"other account": {s.newAccount(), c.UUID, card.Decimal{Units: 1},
				card.ErrNotFound.WithMessage("Your account has no card with this uuid.")},
			"currency without a sandbox": {s.account, other.UUID, card.Decimal{Units: 1},
				card.ErrNotFound.WithMessage("This card's currency has no simulated chain: pay with real coins.")},
		} {
			got, err := s.orders.SimulatePayment(t.Context(), tt.account, tt.card, order.SimulatedPayment{Amount: &tt.amount})
			var refusal *card.Error
			if got != nil || !errors.As(err, &refusal) {
				t.Errorf("%s: %v, %v", name, got, err)
				continue
			}
			if diff := cmp.Diff(tt.want, refusal); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		got, err := s.orders.GetCard(t.Context(), s.account, c.UUID)
		check(t, err)
		if got.State != card.Unpaid {
			t.Errorf("the card is %s", got.State)
		}
	})
}

func TestSimulatePayment_RealChain_IsNotFound(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		s.spy.takeCalls()
		got, err := s.orders.SimulatePayment(t.Context(), s.account, c.UUID, order.SimulatedPayment{})
		var refusal *card.Error
		if got != nil || !errors.Is(err, card.ErrNotFound) || !errors.As(err, &refusal) ||
			refusal.Message != "This service runs no simulated chain: pay with real coins." {
			t.Errorf("%v, %v", got, err)
		}
		s.wantCalls()
	})
}

// broken is a simulated chain whose payments fail.
type broken struct{}

func (broken) Sent(context.Context, string) (string, card.Amount, error) { return "", 0, card.ErrNoRow }

func (broken) PayAs(context.Context, string, string, card.Amount, int) (card.Tip, error) {
	return card.Tip{}, errBroken
}

func TestSimulatePayment_PaymentFails_ReturnsImmediately(t *testing.T) {
	with := setup{sandbox: func(*fixture) map[string]order.Sandbox { return map[string]order.Sandbox{"monero": broken{}} }}
	onEach(t, with, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		if got, err := s.orders.SimulatePayment(t.Context(), s.account, c.UUID, order.SimulatedPayment{}); got != nil ||
			!errors.Is(err, errBroken) {
			t.Errorf("%v, %v", got, err)
		}
		if s.woken != 0 {
			t.Error("the watcher was woken")
		}
	})
}

// waiting runs a test in a synctest bubble, with a card of 150 dollars whose
// watcher runs only on request.
func waiting(t *testing.T, f func(s *fixture, c *card.Card, watch func())) {
	t.Helper()
	t.Parallel()
	url := databases.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		with := setup{sandbox: func(s *fixture) map[string]order.Sandbox {
			return map[string]order.Sandbox{"monero": s.simulated()}
		}}
		s := open(t, url, with)
		w := s.watch()
		f(s, s.create("150", ""), func() { check(t, w.Tick(t.Context())) })
	})
}

// payment is the result of a simulated payment.
type payment struct {
	card *card.Card
	took time.Duration
	err  error
}

// pay starts to simulate a payment of the amount due.
func (s *fixture) pay(ctx context.Context, c *card.Card, confirmations int) <-chan payment {
	ended, started := make(chan payment, 1), time.Now()
	go func() {
		got, err := s.orders.SimulatePayment(ctx, s.account, c.UUID, order.SimulatedPayment{Confirmations: &confirmations})
		ended <- payment{got, time.Since(started), err}
	}()
	return ended
}

// tookAbout reports whether a payment took d, plus at most one poll.
func (p payment) tookAbout(d time.Duration) bool {
	return p.took >= d && p.took <= d+20*time.Millisecond
}

func TestSimulatePayment_WaitsUntilThePaymentIsSeen(t *testing.T) {
	waiting(t, func(s *fixture, c *card.Card, watch func()) {
		ended := s.pay(s.t.Context(), c, 1)
		<-time.After(time.Second)
		watch()
		p := <-ended
		check(s.t, p.err)
		if p.card.State != card.Confirming || p.card.Received != coin || !p.tookAbout(time.Second) {
			s.t.Errorf("%s, received %d after %s", p.card.State, p.card.Received, p.took)
		}
	})
}

func TestSimulatePayment_Paid_WaitsUntilIssued(t *testing.T) {
	waiting(t, func(s *fixture, c *card.Card, watch func()) {
		ended := s.pay(s.t.Context(), c, 10)
		<-time.After(time.Second)
		watch()
		<-time.After(time.Second)
		s.generate(c, credentials)
		p := <-ended
		check(s.t, p.err)
		if p.card.State != card.Paid || p.card.Credentials == nil || !p.tookAbout(2*time.Second) {
			s.t.Errorf("%s, credentials: %v after %s", p.card.State, p.card.Credentials != nil, p.took)
		}
	})
}

// A payment in the mempool does not move the tip; the received amount shows it.
func TestSimulatePayment_WaitsUntilTheRestIsSeen(t *testing.T) {
	waiting(t, func(s *fixture, c *card.Card, watch func()) {
		_, err := s.simulated().Pay(s.t.Context(), c.Address, coin/4, 0)
		check(s.t, err)
		watch()
		ended := s.pay(s.t.Context(), c, 0)
		<-time.After(time.Second)
		watch()
		p := <-ended
		check(s.t, p.err)
		if p.card.State != card.Detected || p.card.Received != coin || !p.tookAbout(time.Second) {
			s.t.Errorf("%s, received %d after %s", p.card.State, p.card.Received, p.took)
		}
	})
}

// Nothing is due; the new tip shows the payment.
func TestSimulatePayment_WaitsUntilTheGrownChainIsSeen(t *testing.T) {
	waiting(t, func(s *fixture, c *card.Card, watch func()) {
		ended := s.pay(s.t.Context(), c, 1)
		<-time.After(time.Second)
		watch()
		check(s.t, (<-ended).err)
		ended = s.pay(s.t.Context(), c, 5)
		<-time.After(time.Second)
		watch()
		p := <-ended
		check(s.t, p.err)
		if p.card.Received != coin || p.card.Confirmations() != 5 || !p.tookAbout(time.Second) {
			s.t.Errorf("received %d, %d confirmations after %s", p.card.Received, p.card.Confirmations(), p.took)
		}
	})
}

func TestSimulatePayment_NotSeen_ReturnsAfterFiveSeconds(t *testing.T) {
	waiting(t, func(s *fixture, c *card.Card, _ func()) {
		p := <-s.pay(s.t.Context(), c, 1)
		check(s.t, p.err)
		if p.card.State != card.Unpaid || p.card.Received != 0 || !p.tookAbout(5*time.Second) {
			s.t.Errorf("%s, received %d after %s", p.card.State, p.card.Received, p.took)
		}
	})
}

func TestSimulatePayment_WaitEndsWithContext(t *testing.T) {
	waiting(t, func(s *fixture, c *card.Card, _ func()) {
		ctx, cancel := context.WithTimeout(s.t.Context(), 1005*time.Millisecond) // between two polls
		defer cancel()
		if p := <-s.pay(ctx, c, 1); p.card != nil || !errors.Is(p.err, context.DeadlineExceeded) || !p.tookAbout(time.Second) {
			s.t.Errorf("%v, %v after %s", p.card, p.err, p.took)
		}
	})
}

func TestSimulatePayment_StoreFailsDuringWait_ReturnsError(t *testing.T) {
	waiting(t, func(s *fixture, c *card.Card, _ func()) {
		reads := 0
		s.spy.before = func(string) error {
			if reads++; reads == 3 {
				return card.ErrUnavailable
			}
			return nil
		}
		if p := <-s.pay(s.t.Context(), c, 1); p.card != nil || !errors.Is(p.err, card.ErrUnavailable) {
			s.t.Errorf("%v, %v", p.card, p.err)
		}
	})
}

// The service must never receive more than it can sum up.
func TestSimulatePayment_MoreThanSupply_IsRefused(t *testing.T) {
	onSandbox(t, func(t *testing.T, s *fixture) {
		c := s.create("150", "")
		pay := func(amount string) (*card.Card, error) {
			p, none := order.SimulatedPayment{Amount: new(card.Decimal)}, 0
			check(t, p.Amount.UnmarshalText([]byte(amount)))
			p.Confirmations = &none
			return s.orders.SimulatePayment(t.Context(), s.account, c.UUID, p)
		}
		refused := func(amount, most string) {
			t.Helper()
			got, err := pay(amount)
			var refusal *card.Error
			if got != nil || !errors.As(err, &refusal) || !errors.Is(err, card.ErrInvalidRequest) {
				t.Fatalf("%v, %v", got, err)
			}
			want := []card.FieldError{
				{Pointer: "/amount", Detail: "must be at most " + most + ": more coins than there are can't come to one address"}}
			if diff := cmp.Diff(want, refusal.Fields); diff != "" {
				t.Error(diff)
			}
		}
		for range 4 {
			_, err := pay("999999.999999999999")
			check(t, err)
		}
		refused("999999.999999999999", "611686.018427387907")
		refused("611686.018427387908", "611686.018427387907")
		got, err := pay("611686.018427387907")
		check(t, err)
		if got.Received != monero.MaxAmount() {
			t.Errorf("received %d", got.Received)
		}
		refused("0.000000000001", "0")
		other, err := s.orders.GetCard(t.Context(), s.account, s.create("150", "").UUID) // other cards are not affected
		check(t, err)
		if other.State != card.Unpaid {
			t.Errorf("another card is %s", other.State)
		}
	})
}

// paid is a simulated chain with a payment.
type paid struct {
	broken
	address string
	amount  card.Amount
	err     error
}

func (p *paid) Sent(context.Context, string) (string, card.Amount, error) {
	return p.address, p.amount, p.err
}

func TestSimulatePayment_KeyReused_IsRefused(t *testing.T) {
	with := setup{sandbox: func(s *fixture) map[string]order.Sandbox {
		s.paid = &paid{}
		return map[string]order.Sandbox{"monero": s.paid}
	}}
	onEach(t, with, func(t *testing.T, s *fixture) {
		s.ready()
		c := s.create("150", "")
		half, unknown := card.Decimal{Units: 5, Scale: 1}, errors.New("the chain is unreachable")
		for name, tt := range map[string]struct {
			paid   paid
			amount *card.Decimal
			want   error
		}{
			// extending the chain fails
			"the same payment": {paid{address: c.Address, amount: coin / 2}, &half, errBroken},
			"amount due":       {paid{address: c.Address, amount: coin / 2}, nil, errBroken},
			"another amount":   {paid{address: c.Address, amount: coin}, &half, card.ErrKeyReused},
			"another card":     {paid{address: "elsewhere", amount: coin / 2}, &half, card.ErrKeyReused},
			"unknown payment":  {paid{address: c.Address, err: unknown}, &half, unknown},
		} {
			*s.paid = tt.paid
			if _, err := s.orders.SimulatePayment(t.Context(), s.account, c.UUID,
				order.SimulatedPayment{Amount: tt.amount, Key: "key"}); !errors.Is(err, tt.want) {
				t.Errorf("%s: error %v, want %v", name, err, tt.want)
			}
		}
	})
}
