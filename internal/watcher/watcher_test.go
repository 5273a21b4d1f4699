package watcher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/watcher"
)

const coin card.Amount = 1_000000000000 // what a card of 150 dollars costs at the rate of 150

func TestWatcher_ExactPayment(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.pay(c, coin, 9)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 9)
		s.mine(1)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.mine(1)
		for range 5 {
			s.settle() // whatever is done again must change nothing
		}
		s.want(c, card.Generated, card.Paid, coin, 11)
		s.wantIssued(1)
	})
}

func TestWatcher_MempoolFirst(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.pay(c, coin, 0)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Detected, coin, 0)
		s.mine(20) // blocks without it
		s.settle()
		s.want(c, card.AwaitingPayment, card.Detected, coin, 0)
		s.pay(c, 0, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestWatcher_SplitUnderpaidThenToppedUp(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.pay(c, coin/2, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/2, 10)
		s.pay(c, coin/2-1, 10)
		s.settle()
		if got := s.want(c, card.AwaitingPayment, card.Underpaid, coin-1, 10); got.Due() != 1 {
			t.Errorf("due is %d", got.Due())
		}
		s.pay(c, 1, 4)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 4)
		s.mine(6)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestWatcher_OverpaidIsOneCard(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.pay(c, 3*coin, 10)
		s.settle()
		s.pay(c, coin, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, 4*coin, 10)
		s.wantIssued(1)
	})
}

func TestWatcher_ReorgBeforeIssue(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.pay(c, coin, 9)
		s.tick()
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 9, true))
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.mine(20)
		s.settle()
		s.wantIssued(0)
		s.pay(c, coin, 10) // and again
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestWatcher_ReorgBetweenPaidAndIssued(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.pay(c, coin, 10)
		s.tick() // the intent is stored, nothing is asked yet
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 10, true))
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.wantIssued(0)
	})
}

func TestWatcher_ReorgReMinedLowerIsPaidOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.mine(30)
		s.pay(c, coin, 5)
		s.tick()
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 20, false)) // back to the mempool
		s.tick()
		s.want(c, card.AwaitingPayment, card.Detected, coin, 0)
		s.pay(c, 0, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestWatcher_ReorgAfterIssue(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		s.mine(30)
		c := s.order()
		s.pay(c, coin, 10)
		s.settle()
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 18, true))
		s.settle()
		s.want(c, card.Generated, card.Reversed, 0, 0)
		s.pay(c, coin, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestWatcher_PaidWhileDownDoesNotExpire(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		paid, unpaid := s.order(), s.order()
		s.pay(paid, coin, 10)
		s.now = s.now.Add(3 * time.Hour) // nobody looked in between
		s.settle()
		s.want(paid, card.Generated, card.Paid, coin, 10)
		s.want(unpaid, card.AwaitingPayment, card.Expired, 0, 0)
		s.wantIssued(1)
	})
}

func TestWatcher_LateMoneyIsJudgedByTodaysRate(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		enough, short, waiting := s.order(), s.order(), s.order()
		s.now = s.now.Add(3 * time.Hour)
		s.settle()
		s.want(enough, card.AwaitingPayment, card.Expired, 0, 0)
		s.pay(enough, coin, 10)
		s.settle()
		s.want(enough, card.Generated, card.Paid, coin, 10)
		s.rates.usd = "149"
		s.pay(short, coin, 10)
		s.settle()
		s.want(short, card.AwaitingPayment, card.Late, coin, 10)
		s.rates.usd = ""
		s.pay(waiting, coin, 10)
		s.settle()
		s.want(waiting, card.AwaitingPayment, card.Confirming, coin, 10)
		s.rates.usd = "150"
		s.mine(1)
		s.settle()
		s.want(waiting, card.Generated, card.Paid, coin, 11)
		s.wantIssued(2)
	})
}

func TestWatcher_MoneyToAnAddressWithoutACardIsKeptAndTheAddressRetired(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		free, err := s.store.LeaseAddresses(t.Context(), "monero", "test", 1, time.Hour)
		check(t, err)
		check(t, s.store.ReturnAddresses(t.Context(), "test"))
		_, err = s.chain.Pay(t.Context(), free[0], coin, 10)
		check(t, err)
		s.settle()
		for {
			some, err := s.store.LeaseAddresses(t.Context(), "monero", "test", 100, time.Hour)
			check(t, err)
			if len(some) == 0 {
				break
			}
			for _, a := range some {
				if a == free[0] {
					t.Fatal("the address is handed out although money came to it")
				}
			}
		}
	})
}

func TestWatcher_AnotherChainIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.pay(c, coin, 10)
		w := watcher.New(s.service, swapped{s.chain}, watcher.Config{Now: s.clock})
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWrongChain) {
			t.Errorf("error %v", err)
		}
		if w.Health() == nil {
			t.Error("healthy")
		}
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
	})
}

type swapped struct{ watcher.Chain }

func (s swapped) Scan(ctx context.Context, since int64) (card.View, error) {
	v, err := s.Chain.Scan(ctx, since)
	v.Fingerprint = "another network"
	return v, err
}

func TestWatcher_AShorterChainFreezesEverything(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		s.pay(c, coin, 10)
		s.tick()
		w := watcher.New(s.service, shorter{s.chain}, watcher.Config{Now: s.clock})
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrChainNotReady) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
	})
}

type shorter struct{ watcher.Chain }

func (s shorter) Scan(context.Context, int64) (card.View, error) {
	return card.View{Fingerprint: "simulated monero", Tip: card.Tip{Height: 3, Hash: "x", Time: time.Now()}}, nil
}

func TestWatcher_OneOfTwoReplicasWatches(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		c := s.order()
		other := s.replica() // has the lease now
		s.pay(c, coin, 10)
		s.tick() // stands by, without an error
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		other.tick()
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		check(t, other.watcher.Close(t.Context()))
		s.tick()
		if err := s.watcher.Health(); err != nil {
			t.Error(err)
		}
	})
}

func TestFillAddresses_AWalletThatIsAheadRetiresWhatIsFree(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		before := s.order()
		// The database was restored from a backup: the wallet has given out addresses that it does not know.
		_, err := s.store.SimulatedAddresses(t.Context(), "monero", 50)
		check(t, err)
		free, highest, err := s.store.AddressPool(t.Context(), "monero")
		check(t, err)
		if _, err := s.store.LeaseAddresses(t.Context(), "monero", "uses some up", 100, time.Hour); err != nil {
			t.Fatal(err)
		}
		s.tick()
		got, err := s.store.LeaseAddresses(t.Context(), "monero", "test", 1000, time.Hour)
		check(t, err)
		if len(got) == 0 || len(got) > 200 {
			t.Errorf("%d addresses; before %d were free, the highest at %d", len(got), free, highest)
		}
		again, err := s.service.GetCard(t.Context(), s.account, before.UUID)
		check(t, err)
		if diff := cmp.Diff(before.Address, again.Address); diff != "" {
			t.Error(diff)
		}
	})
}
