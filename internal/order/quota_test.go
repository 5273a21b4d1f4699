package order_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// limited sets the quota of accounts.
func limited(usd card.USD) setup {
	return setup{config: func(c *order.Config) { c.MaxOpenUSD = usd }}
}

// ready puts addresses into the memory of the service.
func (s *fixture) ready() {
	s.t.Helper()
	s.stock("monero", 40)
	check(s.t, s.orders.Prepare(s.t.Context()))
	s.spy.takeCalls()
}

func TestCreateCard_NoQuota_ReadsNoExposure(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		s.create("750", "")
		s.wantCalls("InsertCard")
	})
}

func TestCreateCard_QuotaExceeded_IsRefused(t *testing.T) {
	onEach(t, limited(500_00), func(t *testing.T, s *fixture) {
		s.ready()
		s.create("449.99", "")
		var refusal *card.Error
		if err := s.wantRefused("50.02", "", card.ErrQuotaExceeded); !errors.As(err, &refusal) {
			t.Fatal(err)
		}
		want := *card.ErrQuotaExceeded
		want.Message = "Cards worth 449.99 US dollars wait for their payment; your account may have 500 open. Pay some of them, or try again when they have expired."
		want.Quota = &card.Quota{Name: "open-usd", Limit: 500, Left: 50}
		if diff := cmp.Diff(&want, refusal); diff != "" {
			t.Error(diff)
		}
		s.create("50.01", "") // exactly what is left
		s.wantRefused("50", "", card.ErrQuotaExceeded)
		s.account = s.newAccount()
		s.create("500", "")
	})
}

// Replicas or a lower quota can make open orders exceed the quota. The
// remainder is never negative.
func TestCreateCard_QuotaLowered_LeavesNothing(t *testing.T) {
	onEach(t, limited(100_00), func(t *testing.T, s *fixture) {
		s.ready()
		s.create("50", "")
		s.exec("UPDATE cards SET usd_cents = 15000")
		s.now = s.now.Add(5 * time.Second)
		var refusal *card.Error
		if err := s.wantRefused("50", "", card.ErrQuotaExceeded); !errors.As(err, &refusal) || refusal.Quota.Left != 0 {
			t.Errorf("%v leaves %+v", err, refusal.Quota)
		}
	})
}

func TestCreateCard_Exposure_IsCachedForFiveSeconds(t *testing.T) {
	onEach(t, limited(500_00), func(t *testing.T, s *fixture) {
		s.ready()
		s.create("500", "")
		s.wantCalls("Exposure true", "InsertCard")
		s.exec("UPDATE cards SET payment_state = 'paid'")
		s.now = s.now.Add(5*time.Second - 1)
		s.wantRefused("50", "", card.ErrQuotaExceeded)
		s.wantCalls()
		s.now = s.now.Add(1)
		s.create("500", "")
		s.wantCalls("Exposure true", "InsertCard")
	})
}

func TestCreateCard_Reversed_FreezesOnlyIfConfigured(t *testing.T) {
	for name, tt := range map[string]struct {
		freeze bool
		limit  card.USD
		asked  []string
		want   error
	}{
		"frozen":             {true, 0, []string{"Exposure false"}, card.ErrAccountFrozen},
		"frozen and limited": {true, 750_00, []string{"Exposure true"}, card.ErrAccountFrozen},
		"limited":            {false, 750_00, []string{"Exposure true", "InsertCard"}, nil},
		"neither":            {false, 0, []string{"InsertCard"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			policy := setup{config: func(c *order.Config) { c.FreezeReversed, c.MaxOpenUSD = tt.freeze, tt.limit }}
			onEach(t, policy, func(t *testing.T, s *fixture) {
				s.ready()
				s.create("150", "")
				s.exec("UPDATE cards SET payment_state = 'reversed', credit_lost = 1")
				s.now = s.now.Add(5 * time.Second)
				s.spy.takeCalls()
				if _, _, err := s.tryOrder("50", ""); !errors.Is(err, tt.want) {
					t.Errorf("%v, want %v", err, tt.want)
				}
				s.wantCalls(tt.asked...)
				s.exec("UPDATE cards SET credit_written_off = 1") // an operator settled it
				s.now = s.now.Add(5 * time.Second)
				s.create("50", "")
			})
		})
	}
}

func TestCreateCard_FreezeWithoutQuota_SumsNothing(t *testing.T) {
	policy := setup{config: func(c *order.Config) { c.FreezeReversed = true }}
	onEach(t, policy, func(t *testing.T, s *fixture) {
		s.ready()
		for range 3 {
			s.create("750", "")
		}
		s.wantCalls("Exposure false", "InsertCard", "InsertCard", "InsertCard")
	})
}

// Orders of an account wait for each other only if there is a quota.
func TestCreateCard_NoQuota_RunsConcurrently(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, url, setup{config: func(c *order.Config) { c.FreezeReversed = true }})
		s.ready()
		stored := false
		s.spy.inserting = func(*card.Card) error {
			s.spy.inserting = nil
			s.create("100", "") // while the other is being stored
			stored = true
			return nil
		}
		s.create("200", "")
		if !stored {
			t.Error("the second order was not stored during the first")
		}
	})
}

func TestCreateCard_Failed_DoesNotCountTowardQuota(t *testing.T) {
	onEach(t, limited(500_00), func(t *testing.T, s *fixture) {
		s.ready()
		for _, fail := range []func(){
			func() { s.spy.fail("InsertCard", errBroken) },
			func() { s.rates.err = errBroken },
		} {
			fail()
			s.wantRefused("500", "", errBroken)
			s.spy.before, s.rates.err = nil, nil
		}
		s.create("450", "")
		s.create("50", "")
		s.wantRefused("50", "", card.ErrQuotaExceeded)
	})
}

// An exposure that was read while a card was being stored may include the card,
// so it is not increased.
func TestCreateCard_ExposureReadDuringInsert_IsNotIncreased(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, url, limited(500_00))
		s.ready()
		var second sync.WaitGroup
		s.spy.inserted = func() {
			s.spy.inserted = nil
			s.now = s.now.Add(5 * time.Second)
			second.Go(func() { s.create("200", "") })
			synctest.Wait() // it has read the exposure, and waits for its turn
		}
		s.create("300", "")
		second.Wait()
		s.wantCalls("Exposure true", "InsertCard", "Exposure true", "InsertCard")
		s.wantRefused("50", "", card.ErrQuotaExceeded)
		s.wantCalls()
	})
}

func TestCreateCard_ExposureUnknown_ReturnsError(t *testing.T) {
	onEach(t, limited(500_00), func(t *testing.T, s *fixture) {
		s.ready()
		s.spy.fail("Exposure true", errBroken)
		for range 2 { // each asks again
			if err := s.wantRefused("50", "key", errBroken); text(err) != "read exposure: broken pipe" {
				t.Error(err)
			}
			s.wantCalls("Exposure true")
		}
		s.spy.before = nil
		s.create("500", "")
		s.now = s.now.Add(5 * time.Second)
		s.spy.fail("Exposure true", errBroken)
		s.wantRefused("50", "", errBroken)
		s.spy.before = nil
		s.spy.takeCalls()
		s.wantRefused("50", "", card.ErrQuotaExceeded)
		s.wantCalls("Exposure true")
	})
}

// One request refreshes the exposure; concurrent ones use the cached value.
func TestCreateCard_Concurrent_ReadExposureOnce(t *testing.T) {
	t.Parallel()
	url := databases.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, url, limited(500_00))
		s.ready()
		s.create("100", "")
		s.now = s.now.Add(5 * time.Second)
		s.spy.takeCalls()
		held := make(chan struct{})
		s.spy.before = func(call string) error {
			if call == "Exposure true" {
				<-held
			}
			return nil
		}
		var first sync.WaitGroup
		first.Go(func() { s.create("100", "") })
		synctest.Wait()
		s.wantCalls("Exposure true")
		s.create("100", "")
		s.wantCalls("InsertCard")
		close(held)
		first.Wait()
		s.wantCalls("InsertCard")
	})
}
