package settle_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
)

// impatient shortens the timeouts of node and wallet.
func impatient(s *moneroFixture) {
	s.config.Timeout, s.config.RefreshTimeout = time.Second, 2*time.Second
}

func TestWatcher_MoneroOtherNetworkOrWallet_StopsAll(t *testing.T) {
	stagenet := rig.Stagenet(t)
	for _, swap := range []struct {
		name       string
		away, back func(t *testing.T, s *moneroFixture)
	}{
		{"the node of another network",
			func(t *testing.T, s *moneroFixture) { s.node.Target(stagenet.URL) },
			func(t *testing.T, s *moneroFixture) { s.node.Target(s.net.DaemonURL) }},
		{"another wallet, seen by a process that knew the right one, and by a new one",
			func(t *testing.T, s *moneroFixture) {
				s.net.Wallet.OpenOther(t)
				s.refuses(card.ErrWrongChain)
				s.restart()
			},
			func(t *testing.T, s *moneroFixture) { s.net.Wallet.Open(t) }},
		{"a wallet that can spend, in the place of the other",
			func(t *testing.T, s *moneroFixture) { s.wallet.Target(s.net.Payer.URL) },
			func(t *testing.T, s *moneroFixture) { s.wallet.Target(s.net.WalletURL) }},
	} {
		t.Run(swap.name, func(t *testing.T) {
			onMonero(t, func(t *testing.T, s *moneroFixture) {
				c, next := s.order(), s.order()
				s.paid(c, coin, few-1)
				s.tick()
				before := s.facts(c, next)
				s.pay(next, coin)
				s.mine(1)
				swap.away(t, s)
				t.Cleanup(func() { s.net.Wallet.Open(t) })
				for range 3 {
					s.refuses(card.ErrWrongChain)
				}
				s.unchanged(before)
				s.wantNoAddress()
				rescans := s.wallet.Calls("rescan_blockchain")
				swap.back(t, s)
				s.recovers()
				s.want(c, card.Generated, card.Paid, coin, few)
				s.want(next, card.AwaitingPayment, s.state(next), coin, s.confirmations(next))
				s.wantIssued(1)
				s.wantAddress()
				s.wantMoney(ledger{Counted: 2 * coin, Made: coin, Open: coin, Paid: 1, Issued: 1})
				if n := s.wallet.Calls("rescan_blockchain") - rescans; n != 0 {
					t.Errorf("%d unnecessary rescans", n)
				}
			}, fewConfirmations)
		})
	}
}

// state returns the state of a card, for tests that cannot know whether the
// first block has taken a payment.
func (s *moneroFixture) state(c *card.Card) card.PaymentState {
	s.t.Helper()
	got, err := s.orders.GetCard(s.t.Context(), s.account, c.UUID)
	check(s.t, err)
	if got.State != card.Detected && got.State != card.Confirming {
		s.t.Errorf("card is %s", got.State)
	}
	return got.State
}

func TestWatcher_MoneroNodeBehind_ChangesNothing(t *testing.T) {
	var lie func(info map[string]any)
	var clock time.Duration
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		ready, unpaid := s.order(), s.order()
		s.paid(ready, coin, few-1)
		s.tick()
		s.mine(1)
		_, newest := s.top()
		s.expire(unpaid, newest) // the newest block is enough for both, if trusted
		before := s.facts(ready, unpaid)
		for name, l := range map[string]func(map[string]any){
			"it synchronizes":                   func(info map[string]any) { info["synchronized"] = false },
			"it is busy with it":                func(info map[string]any) { info["busy_syncing"] = true },
			"it loads":                          func(info map[string]any) { info["status"] = "BUSY" },
			"another node answers in its place": func(info map[string]any) { info["untrusted"] = true },
		} {
			lie = l
			if err := s.watcher.Tick(t.Context()); !errors.Is(err, card.ErrChainNotReady) {
				t.Errorf("%s: %v", name, err)
			}
			s.refuses(card.ErrChainNotReady)
			s.unchanged(before)
		}
		lie, clock = nil, 31*time.Minute
		s.refuses(card.ErrChainNotReady) // its newest block is too old
		s.unchanged(before)
		clock = 0
		s.settle()
		s.want(ready, card.Generated, card.Paid, coin, few)
		s.want(unpaid, card.AwaitingPayment, card.Expired, 0, 0)
		s.wantIssued(1)
	}, fewConfirmations, func(s *moneroFixture) {
		s.config.Now = func() time.Time { return time.Now().Add(clock) }
		s.node.Target(edited(s.t, s.net.DaemonURL, func(method string, result map[string]any) {
			if method == "get_info" && lie != nil {
				lie(result)
			}
		}))
	})
}

func TestWatcher_MoneroNodeKilled_LosesNothing(t *testing.T) {
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		s.settle()
		s.paid(c, coin, few-1)
		s.net.Daemon.Kill()
		s.refuses(nil)
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.net.Daemon.Start(t)
		s.recovers()
		s.want(c, card.AwaitingPayment, card.Confirming, coin, few-1)
		s.mine(1)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, few)
		s.wantIssued(1)
		// the payer's wallet must reconnect to its node
		s.net.Daemon.Ready(t, 20*time.Second, func() error { return s.net.Payer.Ask("refresh", nil, nil) })
	}, fewConfirmations)
}

func TestWatcher_MoneroBrokenAnswers_ChangeNothing(t *testing.T) {
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		waiting := s.order()
		s.paid(waiting, coin/2, 1)
		s.tick()
		before := s.facts(waiting)
		var paid []*card.Card
		for i, fault := range []rig.Fault{rig.Hang, rig.Reset, rig.LoseAnswer, rig.RPCError, rig.TruncatedJSON, rig.HTML,
			rig.EndlessBody, rig.Status500} {
			for j, breaks := range []func(){
				func() { s.node.Break(fault) },
				func() { s.wallet.Break(fault) },
				func() { s.wallet.Break(fault, "get_transfers") },
			} {
				breaks()
				if j == i%3 {
					c := s.order()
					s.pay(c, coin) // unnoticed
					paid = append(paid, c)
				}
				started := time.Now()
				err := s.watcher.Tick(t.Context())
				if took := time.Since(started); err == nil || s.watcher.Health() == nil || took > 5*time.Second {
					t.Errorf("fault %d of endpoint %d: %v after %s", i, j, err, took)
				}
				s.unchanged(before)
				s.node.Restore()
				s.wallet.Restore()
				s.tick()
			}
			s.want(paid[i], card.AwaitingPayment, card.Detected, coin, 0)
		}
		for _, c := range paid {
			s.net.Confirm(t, s.facts(c)[0].Transfers[0].TxID, few)
		}
		s.settle()
		for _, c := range paid {
			s.want(c, card.Generated, card.Paid, coin, s.confirmations(c))
		}
		s.wantIssued(len(paid))
		n := card.Amount(len(paid))
		s.wantMoney(ledger{Counted: n*coin + coin/2, Made: n * coin, Open: coin / 2, Paid: int64(n), Issued: int64(n)})
	}, fewConfirmations, impatient)
}

func TestWatcher_MoneroCreateAddressUnanswered_LosesNothing(t *testing.T) {
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		seen := map[string]bool{}
		for _, method := range []string{"store", "create_address"} {
			for range s.pool {
				if c := s.wantAddress(); seen[c.Address] {
					t.Fatalf("%s was handed out twice", c.Address)
				} else {
					seen[c.Address] = true
				}
			}
			s.wallet.Break(rig.LoseAnswer, method)
			s.refuses(nil)
			s.wallet.Restore()
			s.tick()
		}
		c := s.wantAddress()
		s.paid(c, coin, few)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, few)
	}, fewConfirmations, impatient, func(s *moneroFixture) { s.pool = 8 })
}

func TestWatcher_MoneroNodeOrWalletFrozen_AnswersRequests(t *testing.T) {
	for name, freeze := range map[string]func(*testing.T, *moneroFixture) (thaw func()){
		"node":   func(t *testing.T, s *moneroFixture) func() { s.net.Daemon.Freeze(t); return s.net.Daemon.Thaw },
		"wallet": func(t *testing.T, s *moneroFixture) func() { s.net.Wallet.Freeze(t); return s.net.Wallet.Thaw },
	} {
		t.Run(name, func(t *testing.T) {
			onMonero(t, func(t *testing.T, s *moneroFixture) {
				c := s.order()
				s.paid(c, coin, few-1)
				s.recovers()
				txID := s.pay(s.wantAddress(), coin)
				s.mine(1)
				before := s.facts(c)
				thaw := freeze(t, s)
				t.Cleanup(thaw)
				s.refuses(nil)
				goroutines := runtime.NumGoroutine()
				created := 0
				for range 6 {
					s.refuses(nil)
					check(t, s.orders.Prepare(t.Context()))
					for range 3 { // more than the free addresses
						started := time.Now()
						_, err := create(t.Context(), s.orders, s.account, "150")
						if took := time.Since(started); took > time.Second || (err != nil && !errors.Is(err, card.ErrNoAddress)) {
							t.Errorf("a request returned %v after %s", err, took)
						}
						if err == nil {
							created++
						}
					}
				}
				if created == 0 || created == 18 {
					t.Errorf("%d cards were made", created)
				}
				// some end slowly
				for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines+3; {
					if time.Now().After(deadline) {
						t.Errorf("%d goroutines, after the first pass %d", runtime.NumGoroutine(), goroutines)
						break
					}
					runtime.Gosched()
				}
				s.unchanged(before)
				thaw()
				s.recovers()
				s.want(c, card.Generated, card.Paid, coin, few)
				s.wantAddress()
				s.net.Confirm(t, txID, few)
				s.recovers()
				s.wantIssued(2)
				s.wantMoney(ledger{Counted: 2 * coin, Made: 2 * coin, Paid: 2, Issued: 2})
			}, fewConfirmations, func(s *moneroFixture) {
				s.config.Timeout, s.config.RefreshTimeout = 300*time.Millisecond, time.Second
				s.pool = 8
			})
		})
	}
}
