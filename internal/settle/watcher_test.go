package settle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

const coin card.Amount = 1_000000000000 // price of a card of 150 dollars at the rate of 150

func TestWatcher_ExactPayment(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
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
			s.settle() // repetitions must change nothing
		}
		s.want(c, card.Generated, card.Paid, coin, 11)
		s.wantIssued(1)
	})
}

func TestWatcher_MempoolFirst(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
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

func TestWatcher_UnderpaidThenToppedUp_IsPaid(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin/2, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/2, 10)
		s.pay(c, coin/2-1, 10)
		s.settle()
		if got := s.want(c, card.AwaitingPayment, card.Underpaid, coin-1, 10); got.Credit.Due != 1 {
			t.Errorf("due is %d", got.Credit.Due)
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

func TestWatcher_Overpaid_IssuesOneCard(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, 3*coin, 10)
		s.settle()
		s.pay(c, coin, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, 4*coin, 20)
		s.wantIssued(1)
	})
}

func TestWatcher_ReorgBeforeIssue(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 9)
		s.tick()
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 9, true))
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.mine(20)
		s.settle()
		s.wantIssued(0)
		s.pay(c, coin, 10) // and pays again
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantIssued(1)
	})
}

func TestWatcher_ReorgBetweenPaidAndIssued(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
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

func TestWatcher_ReorgMinedAgainLower_PaysOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
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
	onEach(t, func(t *testing.T, s *fixture) {
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

func TestWatcher_PaidWhileDown_DoesNotExpire(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		paid, unpaid := s.order(), s.order()
		s.pay(paid, coin, 10)
		s.now = s.now.Add(3 * time.Hour) // no pass in between
		s.settle()
		s.want(paid, card.Generated, card.Paid, coin, 10)
		s.want(unpaid, card.AwaitingPayment, card.Expired, 0, 0)
		s.wantIssued(1)
	})
}

func TestWatcher_LateMoney_JudgedByTodaysRate(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
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

func TestWatcher_MoneyToFreeAddress_IsKeptAndAddressWithdrawn(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		var free string
		check(t, rig.OpenSQL(t, s.url).QueryRow("SELECT address FROM addresses WHERE position = 20").Scan(&free))
		_, err := s.chain.Pay(t.Context(), free, coin, 10)
		check(t, err)
		s.settle()
		for range 60 {
			if c := s.order(); c.Address == free {
				t.Fatal("the address was handed out although it had received a payment")
			}
		}
		var kept int64
		check(t, rig.OpenSQL(t, s.url).QueryRow("SELECT amount FROM transfers WHERE counted").Scan(&kept))
		if card.Amount(kept) != coin {
			t.Errorf("%d was recorded", kept)
		}
	})
}

func TestWatcher_OtherChain_IsRejected(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		w := s.watch(otherChain{s.chain}, settle.Config{})
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWrongChain) {
			t.Errorf("error %v", err)
		}
		if w.Health() == nil {
			t.Error("healthy")
		}
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
	})
}

type otherChain struct{ settle.Chain }

func (s otherChain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	v, err := s.Chain.Scan(ctx, q)
	v.Fingerprint = "another network"
	return v, err
}

func TestWatcher_ChainShorter_ChangesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		s.tick()
		w := s.watch(shorterChain{s.chain}, settle.Config{})
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrChainNotReady) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
	})
}

type shorterChain struct{ settle.Chain }

func (s shorterChain) Scan(context.Context, settle.Query) (settle.View, error) {
	return settle.View{Fingerprint: "simulated monero", Tip: card.Tip{Height: 3, Hash: "x", Time: time.Now()}}, nil
}

func TestWatcher_TwoReplicas_OneWatches(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
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

func TestWatcher_DatabaseRestored_HandsOutNoUsedAddress(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.order()
		// Last night's backup: the pool is full, the wallet has made more
		// addresses since, and the last comparison was hours ago.
		first, err := s.store.SimulatedAddresses(t.Context(), "monero", 50)
		check(t, err)
		_, err = rig.OpenSQL(t, s.url).Exec("UPDATE address_pools SET checked_at = 0")
		check(t, err)
		restored := s.replica()
		for range 40 {
			c := restored.order()
			var position int64
			check(t, rig.OpenSQL(t,
				s.url).QueryRow("SELECT position FROM addresses WHERE address = '"+c.Address+"'").Scan(&position))
			if position < first+50 {
				t.Fatalf("address %d was handed out, although the wallet was at %d", position, first+50)
			}
		}
	})
}

func TestWatcher_PoolNotFull_FillsWithoutPause(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.order() // which takes 32 addresses of the 200
		check(t, s.watcher.Close(t.Context()))
		woken := 0
		wake := wakesNothing()
		wake.Pass = func() { woken++ }
		w, err := settle.New(s.store, s.rates, s.chain, wake, quiet,
			settle.Config{PoolSize: 200, FillBatch: 15, CompareEvery: -1, Now: s.clock})
		check(t, err)
		for i, tt := range []struct{ free, woken int }{{183, 1}, {198, 2}, {200, 2}, {200, 2}} {
			check(t, w.Tick(t.Context()))
			pool, err := s.store.AddressPool(t.Context(), "monero")
			check(t, err)
			free := pool.Free
			if free != tt.free || woken != tt.woken {
				t.Errorf("pass %d: %d addresses free and woken %d times, want %d and %d", i+1, free, woken, tt.free, tt.woken)
			}
		}
		check(t, w.Close(t.Context()))
	})
}

func TestWatcher_WalletLostAddresses_IsNotTrusted(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 5)
		s.tick()
		w := s.watch(recreatedWallet{emptyWallet{s.chain}}, settle.Config{})
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrChainNotReady) {
			t.Errorf("error %v", err)
		}
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 5)
	})
}

// recreatedWallet is a wallet that was restored from its keys: the same network
// and address, but none of the subaddresses.
type recreatedWallet struct{ emptyWallet }

func (f recreatedWallet) Holds(context.Context, settle.Address) error {
	return card.ErrWalletLost
}

func TestWatcher_MoneyMissingFromKeptBlock_UncountedOnlyByOperator(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 5)
		s.tick()
		w := s.watch(emptyWallet{s.chain}, settle.Config{})
		for range 3 { // rescans the whole chain
			if err := w.Tick(t.Context()); !errors.Is(err, card.ErrWalletLost) {
				t.Errorf("error %v", err)
			}
		}
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 5)
		check(t, s.store.AskForRescan(t.Context(), "monero", true))
		check(t, w.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		check(t, w.Close(t.Context()))
	})
}

// emptyWallet is a wallet that has its addresses, and none of their payments.
type emptyWallet struct{ settle.Chain }

func (e emptyWallet) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	v, err := e.Chain.Scan(ctx, q)
	v.Transfers = nil
	return v, err
}

func TestWatcher_ReadLongerThanLease_StillApplies(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		check(t, s.watcher.Close(t.Context()))
		slow := s.watch(slowChain{s.chain, func() { s.now = s.now.Add(time.Second); expireLeases(t, s) }},
			settle.Config{LeaseTTL: time.Second})
		check(t, slow.Tick(t.Context()))
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
	})
}

func TestWatcher_LeaseLostAfterRead_AppliesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		check(t, s.watcher.Close(t.Context()))
		slow := s.watch(slowChain{s.chain, func() {
			s.now = s.now.Add(time.Second)
			expireLeases(t, s)
			l, err := s.store.AcquireLease(t.Context(), "watch monero", "another", time.Hour)
			check(t, err)
			check(t, s.store.ReleaseLease(t.Context(), l))
		}}, settle.Config{LeaseTTL: time.Second})
		if err := slow.Tick(t.Context()); !errors.Is(err, card.ErrFenced) || slow.Health() == nil {
			t.Errorf("error %v, health %v", err, slow.Health())
		}
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
	})
}

// slowChain calls a function while it reads.
type slowChain struct {
	settle.Chain
	meanwhile func()
}

func (s slowChain) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	s.meanwhile()
	return s.Chain.Scan(ctx, q)
}

func expireLeases(t *testing.T, s *fixture) {
	t.Helper()
	_, err := rig.OpenSQL(t, s.url).Exec("UPDATE leases SET expires_at = 0")
	check(t, err)
}

func TestWatcher_CheapLateMoney_DustDoesNotReverseCard(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.now = s.now.Add(3 * time.Hour)
		s.settle()
		s.rates.usd = "200"
		s.pay(c, coin*3/4, 10)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin*3/4, 10)
		s.pay(c, 1, 10)
		s.settle()
		if got := s.want(c, card.Generated, card.Paid, coin*3/4+1, 20); got.Credit.Due != 0 {
			t.Errorf("due is %d", got.Credit.Due)
		}
	})
}
