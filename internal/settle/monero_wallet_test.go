package settle_test

import (
	"errors"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/rig"
)

var manyAddresses = flag.Int("addresses", 300,
	"have so many cards open at once; a wallet makes about 180 addresses a second")

func TestWatcher_MoneroWalletCanSpend_IsRejected(t *testing.T) {
	s := newMoneroFixture(t, "sqlite:"+t.TempDir()+"/x.db", fewConfirmations, func(s *moneroFixture) {
		s.wallet.Target(s.net.Payer.URL)
	})
	for range 2 {
		s.refuses(monero.ErrSpendKey)
	}
	s.wantNoAddress()
	if n := s.wallet.Calls("create_address") + s.wallet.Calls("get_transfers"); n != 0 {
		t.Errorf("it was used %d times", n)
	}
	s.wallet.Target(s.net.WalletURL)
	s.tick()
	c := s.wantAddress()
	s.paid(c, coin, few)
	s.settle()
	s.want(c, card.Generated, card.Paid, coin, few)
}

func TestWatcher_MoneroWalletRestarts_LoginWorks(t *testing.T) {
	var own *rig.MoneroWallet
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		s.paid(c, coin, few-1)
		s.tick()
		own.Kill()
		s.refuses(nil)
		own.Start(t) // with a new nonce
		s.mine(1)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, few)
		s.wantIssued(1)
	}, fewConfirmations, func(s *moneroFixture) {
		own = s.net.NewWallet(s.t, "merchant", "correct-horse")
		// a login may not survive a proxy
		s.config.WalletURL, s.config.WalletUser, s.config.WalletPassword = own.URL, "merchant", "correct-horse"
	})
}

func TestWatcher_MoneroThreeReplicasCreate_ShareNoAddress(t *testing.T) {
	var own *rig.MoneroWallet
	onMoneroPostgres(t, func(t *testing.T, s *moneroFixture) {
		replicas := []*moneroFixture{s, s.replica(), s.replica()}
		var mu sync.Mutex
		owner := map[string]*card.Card{}
		create := func(r *moneroFixture) bool {
			c, err := create(t.Context(), r.orders, r.account, "150")
			if errors.Is(err, card.ErrNoAddress) && t.Context().Err() == nil {
				<-time.After(10 * time.Millisecond) // a client retries
				return false
			}
			if err != nil {
				t.Error(err)
				return true
			}
			mu.Lock()
			defer mu.Unlock()
			if other := owner[c.Address]; other != nil {
				t.Errorf("%s is the address of %s and of %s", c.Address, other.UUID, c.UUID)
			}
			owner[c.Address] = c
			return true
		}
		var creating, watching sync.WaitGroup
		for i := range 12 {
			creating.Go(func() {
				for n := i; n < *manyAddresses; n += 12 {
					for !create(replicas[i%3]) {
					}
				}
			})
		}
		done := make(chan struct{})
		watching.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				r := replicas[i/10%3] // each makes some of the addresses
				if err := r.watcher.Tick(t.Context()); err != nil {
					t.Error(err)
				}
				if i%10 == 9 {
					if err := r.watcher.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
		started := time.Now()
		creating.Wait()
		close(done)
		watching.Wait()
		t.Logf("%d cards in %s", len(owner), time.Since(started).Round(time.Millisecond))
		var wallet struct{ Addresses []struct{ Address string } }
		own.Call(t, "get_address", map[string]any{"account_index": 0}, &wallet)
		known := map[string]bool{}
		for _, a := range wallet.Addresses[1:] {
			known[a.Address] = true
		}
		for address := range owner {
			if !known[address] || address == s.net.Address {
				t.Errorf("%s is not an address of the wallet", address)
			}
		}
		if len(owner) != *manyAddresses {
			t.Errorf("%d cards, want %d", len(owner), *manyAddresses)
		}

		t.Run("one pass over all of them", func(t *testing.T) {
			for _, r := range replicas {
				check(t, r.watcher.Close(t.Context()))
			}
			s.tick() // fills the pool
			calls, shortest := s.wallet.Calls("get_transfers"), time.Hour
			for range 5 {
				s.mine(1)
				started := time.Now()
				s.tick()
				shortest = min(shortest, time.Since(started))
			}
			t.Logf("%d open cards, %d addresses: a pass takes %s", len(owner), len(wallet.Addresses),
				shortest.Round(time.Millisecond))
			if shortest > time.Second {
				t.Error("too slow")
			}
			if n := s.wallet.Calls("get_transfers") - calls; n != 5 {
				t.Errorf("get_transfers was called %d times in 5 passes", n)
			}
		})
	}, fewConfirmations, ownWallet(&own), func(s *moneroFixture) { s.pool, s.batch = 512, 256 })
}
