package order_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/settle"
)

// takeAddresses hands out n addresses of monero. No card is stored for them.
func (s *fixture) takeAddresses(n int) {
	s.t.Helper()
	s.spy.inserting = func(*card.Card) error { return errBroken }
	for range n {
		s.wantRefused("150", "", errBroken)
	}
	s.spy.inserting = nil
	s.spy.takeCalls()
}

// prepared calls Prepare, and compares how many addresses were requested; 0 for
// none.
func (s *fixture) prepared(n int) {
	s.t.Helper()
	want := []string{"PoolState monero"}
	if n > 0 {
		want = append(want, fmt.Sprintf("TakeAddresses monero %d", n))
	}
	check(s.t, s.orders.Prepare(s.t.Context()))
	s.wantCalls(want...)
}

func onlyMonero(c *order.Config) { c.Currencies = []card.Currency{monero} }

func TestPrepare_BatchesUsedQuickly_Double(t *testing.T) {
	onEach(t, setup{config: onlyMonero}, func(t *testing.T, s *fixture) {
		s.stock("monero", 32+64+128+256+512+1024+3*2048)
		free := 0
		for _, batch := range []int{32, 64, 128, 256, 512, 1024, 2048, 2048} {
			s.prepared(batch)
			free += batch
			s.prepared(0) // there are enough
			s.takeAddresses(free - batch/2 - 1)
			s.prepared(0) // just enough
			s.takeAddresses(1)
			free = batch / 2
			s.now = s.now.Add(5*time.Second - 1)
		}
		s.now = s.now.Add(1) // slow enough to keep the batch size
		s.prepared(2048)
		if s.woken != 0 {
			t.Errorf("the watchers were woken %d times, although the store had enough addresses", s.woken)
		}
	})
}

func TestPrepare_BatchesUsedSlowly_KeepTheirSize(t *testing.T) {
	onEach(t, setup{config: onlyMonero}, func(t *testing.T, s *fixture) {
		s.stock("monero", 100)
		s.prepared(32)
		s.takeAddresses(16)
		s.now = s.now.Add(5 * time.Second)
		s.prepared(32)
		s.takeAddresses(32)
		s.now = s.now.Add(5*time.Second - 1)
		s.prepared(64) // 36 of them are left
		if s.woken != 1 {
			t.Errorf("the watchers were woken %d times, want once", s.woken)
		}
		s.takeAddresses(20)
		s.prepared(64) // the last batch was not full, so the size stays
	})
}

func TestPrepare_StoreRunsOut_WakesWatchers(t *testing.T) {
	for _, tt := range []struct{ left, woken int }{{0, 2}, {31, 1}, {32, 0}} {
		t.Run(fmt.Sprintf("%d are left", tt.left), func(t *testing.T) {
			onEach(t, setup{config: onlyMonero}, func(t *testing.T, s *fixture) {
				s.stock("monero", 40)
				_, err := s.db.TakeAddresses(t.Context(), "monero", 40-tt.left)
				check(t, err)
				check(t, s.orders.Prepare(t.Context()))
				check(t, s.orders.Prepare(t.Context()))
				if s.woken != tt.woken {
					t.Errorf("woken %d times, want %d", s.woken, tt.woken)
				}
			})
		})
	}
}

// Before the first pass over a chain there are no addresses, and no errors.
func TestPrepare_NeverWatched_IsNoError(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		check(t, s.orders.Prepare(t.Context()))
		s.wantCalls("PoolState monero", "PoolState pebble")
		s.wantRefused("150", "", card.ErrNoAddress)
	})
}

// While payments would not be seen, the addresses in memory are withheld.
func TestPrepare_BlindChain_WithholdsAddresses(t *testing.T) {
	limits := setup{config: func(c *order.Config) { c.MaxBlind = time.Minute }}
	onEach(t, limits, func(t *testing.T, s *fixture) {
		s.stock("monero", 64)
		s.stock("pebble", 64)
		check(t, s.orders.Prepare(t.Context()))
		s.create("150", "")
		s.spy.ages = map[string]time.Duration{"monero": time.Minute + 1}
		check(t, s.orders.Prepare(t.Context()))
		s.wantRefused("150", "", card.ErrNoAddress)
		if _, _, err := s.orders.CreateCard(t.Context(), s.account, s.check("150", "pebble"), ""); err != nil {
			t.Errorf("the other currency: %v", err)
		}
		s.spy.ages["monero"] = time.Minute
		check(t, s.orders.Prepare(t.Context()))
		s.create("150", "")
	})
}

func TestPrepare_OneCurrencyFails_OthersContinue(t *testing.T) {
	for _, call := range []string{"PoolState monero", "TakeAddresses monero 32"} {
		t.Run(call, func(t *testing.T) {
			onEach(t, setup{}, func(t *testing.T, s *fixture) {
				s.stock("monero", 64)
				s.stock("pebble", 64)
				s.spy.fail(call, errBroken)
				err := s.orders.Prepare(t.Context())
				if want := map[string]string{
					"PoolState monero":        "monero: broken pipe",
					"TakeAddresses monero 32": "monero: take addresses: broken pipe",
				}[call]; !errors.Is(err, errBroken) || err.Error() != want {
					t.Errorf("%v, want %s", err, want)
				}
				s.spy.takeCalls()
				if _, _, err := s.orders.CreateCard(t.Context(), s.account, s.check("150", "pebble"), ""); err != nil {
					t.Errorf("the other currency: %v", err)
				}
				s.wantCalls("InsertCard")
			})
		})
	}
}

func TestCreateCard_TakeAddressesFails_ReturnsItsError(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.spy.fail("TakeAddresses monero 32", card.ErrUnavailable)
		s.wantRefused("150", "key", card.ErrUnavailable)
		s.wantCalls("TakeAddresses monero 32")
	})
}

// Requests that find no address in memory share one batch.
func TestCreateCard_Concurrent_ShareOneBatch(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, url, setup{})
		s.stock("monero", 64)
		ask := s.check("150", "monero")
		held := make(chan struct{})
		s.spy.before = func(call string) error {
			if call == "TakeAddresses monero 32" {
				<-held
			}
			return nil
		}
		var all sync.WaitGroup
		addresses, failed := make([]string, 10), make([]error, 10)
		for i := range addresses {
			all.Go(func() {
				c, _, err := s.orders.CreateCard(t.Context(), s.account, ask, "")
				if failed[i] = err; err == nil {
					addresses[i] = c.Address
				}
			})
		}
		synctest.Wait()
		s.wantCalls("TakeAddresses monero 32")
		close(held)
		all.Wait()
		if err := errors.Join(failed...); err != nil {
			t.Error(err)
		}
		used := map[string]bool{}
		for _, a := range addresses {
			used[a] = true
		}
		if len(used) != 10 {
			t.Errorf("used %d addresses: %q", len(used), addresses)
		}
		for _, call := range s.spy.takeCalls() {
			if call != "InsertCard" {
				t.Errorf("call to the store: %s", call)
			}
		}
	})
}

func TestCreateCard_BatchPending_WaitEndsWithContext(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, url, setup{})
		s.stock("monero", 64)
		ask := s.check("150", "monero")
		held := make(chan struct{})
		s.spy.before = func(string) error { <-held; return nil }
		var first sync.WaitGroup
		first.Go(func() { _, _, _ = s.orders.CreateCard(t.Context(), s.account, ask, "") })
		synctest.Wait() // it takes a batch
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		started := time.Now()
		_, _, err := s.orders.CreateCard(short, s.account, ask, "")
		if took := time.Since(started); !errors.Is(err, card.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			took != time.Second {
			t.Errorf("%v after %s", err, took)
		}
		close(held)
		first.Wait()
	})
}

// A process is not ready before it can accept orders. It stays ready when its
// addresses run out, because reads need none.
func TestStocked_AfterFirstAddress(t *testing.T) {
	onEach(t, setup{config: onlyMonero}, func(t *testing.T, s *fixture) {
		want := func(reason string) {
			t.Helper()
			if err := s.orders.Stocked("monero"); reason == "" && err != nil || reason != "" &&
				!errors.Is(err, card.Unready(reason)) {
				t.Errorf("%v, want %q", err, reason)
			}
		}
		const none = "there has been no payment address of monero yet"
		want(none)
		s.attest("monero")
		check(t, s.orders.Prepare(t.Context()))
		want(none)
		s.stock("monero", 1)
		check(t, s.orders.Prepare(t.Context()))
		want("")
		s.takeAddresses(1)
		s.wantRefused("150", "", card.ErrNoAddress)
		want("")
	})
}

// orderAll orders cards of an account until no address is left for it, and
// returns their number.
func (s *fixture) orderAll(account uuid.UUID) (n int) {
	s.t.Helper()
	ask := s.check("150", "monero")
	for {
		_, _, err := s.orders.CreateCard(s.t.Context(), account, ask, "")
		if errors.Is(err, card.ErrNoAddress) {
			return n
		}
		check(s.t, err)
		n++
	}
}

func TestCreateCard_AddressesAreShort_OnlyAccountGetsAll(t *testing.T) {
	onEach(t, setup{config: onlyMonero}, func(t *testing.T, s *fixture) {
		s.stock("monero", 40)
		if got := s.orderAll(s.account); got != 40 {
			t.Errorf("%d orders got an address", got)
		}
	})
}

func TestCreateCard_AddressesAreShort_OneAccountLeavesSomeForOthers(t *testing.T) {
	onEach(t, setup{config: onlyMonero}, func(t *testing.T, s *fixture) {
		second, third, late := s.newAccount(), s.newAccount(), s.newAccount()
		if got := s.orderAll(second); got != 0 { // from now on, two accounts are known
			t.Errorf("%d orders got an address from an empty pool", got)
		}
		s.stock("monero", 40)
		for _, tt := range []struct {
			account uuid.UUID
			want    int
		}{
			{s.account, 36}, // a batch of 32, and half of the remaining 8
			{second, 3},     // all but the last
			{s.account, 0},
			{third, 1},
			{late, 0},
		} {
			if got := s.orderAll(tt.account); got != tt.want {
				t.Errorf("%d orders got an address, want %d", got, tt.want)
			}
		}
		more := make([]settle.Address, 100)
		for i := range more {
			more[i] = settle.Address{Currency: "monero", Address: fmt.Sprintf("more-%d", i), Position: int64(1000 + i)}
		}
		check(t, s.db.SettleTx(t.Context(), func(tx settle.Tx) error {
			return tx.InsertAddresses(t.Context(), more, time.Time{})
		}))
		// 64 and all but 16 of the rest
		if first, rest := s.orderAll(late), s.orderAll(s.account); first != 84 || rest != 15 {
			t.Errorf("%d and %d orders got an address", first, rest)
		}
	})
}
