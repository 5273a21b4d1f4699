package settle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
)

func TestWatcher_MoneroExactPayment_PaidAtLastConfirmation(t *testing.T) {
	t.Parallel()
	onMoneroEach(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		txID := s.pay(c, coin)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Detected, coin, 0)
		s.net.Confirm(t, txID, 9)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 9)
		s.wantIssued(0)
		s.mine(1)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.mine(1)
		for range 3 {
			s.settle() // repetitions must change nothing
		}
		s.want(c, card.Generated, card.Paid, coin, 11)
		s.wantIssued(1)
		s.wantEvents(c, card.EventDetected, card.EventGenerated)
		s.wantMoney(ledger{Counted: coin, Made: coin, Paid: 1, Issued: 1})
	})
}

func TestWatcher_MoneroSplitPayments_AddUp(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		exact, short := s.order(), s.order()
		for i, part := range []card.Amount{coin / 4, coin / 4, coin / 2} {
			missing := card.Amount(i / 2) // of the last part
			txID := s.net.PayMany(t, rig.MoneroOutput{Address: exact.Address, Amount: int64(part)},
				rig.MoneroOutput{Address: short.Address, Amount: int64(part - missing)})
			s.net.Confirm(t, txID, 1)
			s.settle()
			if i == 0 {
				s.want(exact, card.AwaitingPayment, card.Underpaid, coin/4, 1)
			}
		}
		s.want(exact, card.AwaitingPayment, card.Confirming, coin, 1)
		s.mine(9)
		s.settle()
		s.want(exact, card.Generated, card.Paid, coin, 10)
		if got := s.want(short, card.AwaitingPayment, card.Underpaid, coin-1, 10); got.Credit.Due != 1 {
			t.Errorf("due is %d", got.Credit.Due)
		}
		s.wantMoney(ledger{Counted: 2*coin - 1, Made: coin, Open: coin - 1, Paid: 1, Issued: 1})
		txID := s.paid(short, 1, 9)
		s.settle()
		s.want(short, card.AwaitingPayment, card.Confirming, coin, 9)
		s.net.Confirm(t, txID, 10)
		s.settle()
		s.want(short, card.Generated, card.Paid, coin, 10)
		s.wantIssued(2)
		s.wantEvents(short, card.EventUnderpaid, card.EventDetected, card.EventGenerated)
		s.wantMoney(ledger{Counted: 2 * coin, Made: 2 * coin, Paid: 2, Issued: 2})
	})
}

func TestWatcher_MoneroOverpaid_IssuesOneCardAndRecordsSurplus(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		s.paid(c, 3*coin, 10)
		s.settle()
		s.settle()
		if got := s.want(c, card.Generated, card.Paid, 3*coin, 10); got.Credit.Surplus != 2*coin || got.USD != c.USD ||
			got.Credit.Due != 0 {
			t.Errorf("surplus %d, due %d, made for %s", got.Credit.Surplus, got.Credit.Due, got.USD)
		}
		s.wantIssued(1)
		s.wantMoney(ledger{Counted: 3 * coin, Made: coin, Surplus: 2 * coin, Paid: 1, Issued: 1})
	})
}

func TestWatcher_MoneroSeenBeforeExpiry_KeepsRate(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		early, worth, cheap, short := s.order(), s.order(), s.order(), s.order()
		txID := s.pay(early, coin)
		s.settle()
		s.want(early, card.AwaitingPayment, card.Detected, coin, 0)
		seen := s.facts(early)[0].Transfers[0].FirstSeenAt
		for _, c := range []*card.Card{early, worth, cheap, short} {
			s.expire(c, seen.Add(time.Millisecond))
		}
		s.rates.usd = "100" // at this rate, the early payment is too little
		s.mineAfter(seen.Add(time.Millisecond))
		s.net.Confirm(t, txID, 10)
		s.settle()
		s.want(early, card.Generated, card.Paid, coin, s.confirmations(early))
		for _, c := range []*card.Card{worth, cheap, short} {
			s.want(c, card.AwaitingPayment, card.Expired, 0, 0)
		}

		s.rates.usd = "200"
		late := s.net.PayMany(t, rig.MoneroOutput{Address: worth.Address, Amount: int64(coin)},
			rig.MoneroOutput{Address: cheap.Address, Amount: int64(coin * 3 / 4)},
			rig.MoneroOutput{Address: short.Address, Amount: int64(coin*3/4 - 1)})
		s.net.Confirm(t, late, 10)
		s.settle()
		s.want(worth, card.Generated, card.Paid, coin, 10)
		s.want(cheap, card.Generated, card.Paid, coin*3/4, 10)
		s.want(short, card.AwaitingPayment, card.Late, coin*3/4-1, 10)
		s.wantEvents(short, card.EventExpired, card.EventLate)
		s.wantIssued(3)
		s.wantMoney(
			ledger{Counted: 2*coin + coin*3/2 - 1, Made: 2*coin + coin*3/4, Held: coin*3/4 - 1, Paid: 3, Issued: 3, Late: 1})
	})
}

func TestWatcher_MoneroPaidWhileDown_DoesNotExpire(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		paid, unpaid := s.order(), s.order()
		check(t, s.watcher.Close(t.Context()))
		s.paid(paid, coin, 10)
		_, newest := s.top()
		ends := newest.Add(time.Millisecond)
		s.expire(paid, ends)
		s.expire(unpaid, ends)
		s.later = 3 * time.Hour // no later block was seen, so no quote expires
		s.restart()
		s.settle()
		s.want(paid, card.Generated, card.Paid, coin, 10)
		s.want(unpaid, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.mineAfter(ends)
		s.settle()
		s.want(unpaid, card.AwaitingPayment, card.Expired, 0, 0)
		s.wantIssued(1)
		s.wantEvents(paid, card.EventDetected, card.EventGenerated)
		s.wantMoney(ledger{Counted: coin, Made: coin, Paid: 1, Issued: 1})
	})
}

func TestWatcher_MoneroReadAHundredTimesByThreeReplicas_OneBalance(t *testing.T) {
	t.Parallel()
	onMoneroPostgres(t, func(t *testing.T, s *moneroFixture) {
		made, confirming, pooled, short := s.order(), s.order(), s.order(), s.order()
		s.paid(made, coin/2, 1)
		s.paid(made, coin/2, 7)
		s.paid(confirming, coin, 4)
		s.paid(short, coin/3, 1)
		s.pay(pooled, coin)
		s.settle()
		before := s.facts(made, confirming, pooled, short)
		replicas := []*moneroFixture{s, s.replica(), s.replica()}
		for i := range 100 {
			r := replicas[i%3]
			if i%20 == 19 {
				r.restart()
			}
			check(t, r.watcher.Tick(t.Context()))
			check(t, r.watcher.Close(t.Context())) // the next one rereads the same
		}
		s.unchanged(before)
		s.want(made, card.Generated, card.Paid, coin, s.confirmations(made))
		s.want(confirming, card.AwaitingPayment, card.Confirming, coin, s.confirmations(confirming))
		s.want(pooled, card.AwaitingPayment, card.Detected, coin, 0)
		s.want(short, card.AwaitingPayment, card.Underpaid, coin/3, 1)
		s.wantIssued(1)
		s.wantMoney(
			ledger{Counted: 3*coin + coin/3, Made: coin, Open: 2*coin + coin/3, Unconfirmed: coin, Paid: 1, Issued: 1})
	}, func(s *moneroFixture) { s.pool, s.lease = 6, time.Minute }) // each of them makes n addresses when it takes over
}

func TestWatcher_MoneroMoneyForIssuedOrExpiredCard_IsKept(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		made, expired := s.order(), s.order()
		s.expire(expired, time.Now())
		s.paid(made, coin, 10)
		s.mineAfter(time.Now().Truncate(time.Second).Add(time.Second))
		s.settle()
		s.want(made, card.Generated, card.Paid, coin, s.confirmations(made))
		s.want(expired, card.AwaitingPayment, card.Expired, 0, 0)
		s.rates.usd = "149"
		before := s.unattributed()
		both := s.net.PayMany(t, rig.MoneroOutput{Address: made.Address, Amount: int64(coin)},
			rig.MoneroOutput{Address: expired.Address, Amount: int64(coin)})
		s.net.Confirm(t, both, 10)
		s.settle()
		if got := s.want(made, card.Generated, card.Paid, 2*coin, s.confirmations(made)); got.Credit.Surplus != coin {
			t.Errorf("surplus is %d", got.Credit.Surplus)
		}
		s.want(expired, card.AwaitingPayment, card.Late, coin, 10)
		s.wantIssued(1)
		if diff := cmp.Diff(before, s.unattributed()); diff != "" {
			t.Errorf("unattributed: %s", diff)
		}
		waiting, err := s.store.FindCards(t.Context(), operator.Search{NeedsOperator: true, Limit: 10})
		check(t, err)
		if diff := cmp.Diff(ids([]*card.Card{expired}), ids(waiting)); diff != "" {
			t.Errorf("need an operator: %s", diff)
		}
		for _, r := range s.facts(made, expired) {
			if last := r.Transfers[len(r.Transfers)-1]; last.TxID != both || !last.Counted {
				t.Errorf("kept of %s: %+v", r.Card.UUID, r.Transfers)
			}
		}
		s.wantMoney(ledger{Counted: 3 * coin, Made: coin, Held: coin, Surplus: coin, Paid: 1, Issued: 1, Late: 1})
	})
}

// confirmations returns a card's confirmations where a test cannot know them.
func (s *moneroFixture) confirmations(c *card.Card) int64 {
	s.t.Helper()
	got, err := s.orders.GetCard(s.t.Context(), s.account, c.UUID)
	check(s.t, err)
	return got.Confirmations()
}

func TestWatcher_MoneroLockedMoney_PaysOnceUnlocked(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		block, clock, day, past := s.order(), s.order(), s.order(), s.order()
		start := s.net.Height(t)
		const leeway = 180 // a lock may end this many seconds early
		unlocked := time.Now().Add(40 * time.Second)
		locked := func(c *card.Card, unlock int64) rig.MoneroLocked {
			return rig.MoneroLocked{UnlockTime: uint64(unlock),
				MoneroOutput: rig.MoneroOutput{Address: c.Address, Amount: int64(coin)}}
		}
		s.net.PayLocked(t,
			locked(block, start+32),
			locked(clock, unlocked.Unix()+leeway),
			locked(day, time.Now().Add(24*time.Hour).Unix()),
			locked(past, 1)) // read as a time, long ago
		s.settle()
		for _, c := range []*card.Card{block, clock, day, past} {
			s.want(c, card.AwaitingPayment, card.Detected, coin, 0)
		}
		for s.confirmations(day) < 24 {
			s.mine(4)
			s.settle()
		}
		if now := time.Now(); !now.Before(unlocked) {
			t.Fatalf("too slow: the time lock ended %s ago", now.Sub(unlocked))
		}
		for _, c := range []*card.Card{block, clock, day} {
			if got := s.want(c, card.AwaitingPayment, card.Confirming, coin, s.confirmations(c)); got.Confirmations() < 23 {
				t.Errorf("%d confirmations", got.Confirmations())
			}
		}
		s.want(past, card.Generated, card.Paid, coin, s.confirmations(past))
		s.wantIssued(1)

		for s.net.Height(t) < start+33 {
			s.mine(1)
		}
		s.settle()
		s.want(block, card.Generated, card.Paid, coin, s.confirmations(block))
		s.mineAfter(unlocked.Add(time.Second))
		s.net.Wallet.Reconnect(t) // otherwise it gets the time only after 30 s
		s.settle()
		s.want(clock, card.Generated, card.Paid, coin, s.confirmations(clock))
		s.want(day, card.AwaitingPayment, card.Confirming, coin, s.confirmations(day))
		s.wantIssued(3)
		if !s.facts(day)[0].Transfers[0].Locked {
			t.Error("not shown as locked")
		}
		s.wantMoney(ledger{Counted: 4 * coin, Made: 3 * coin, Open: coin, Paid: 3, Issued: 3})
	})
}

func TestWatcher_MoneroOutputsOfOneTransaction_PayEveryCard(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		twice, other := s.order(), s.order()
		half := rig.MoneroOutput{Address: twice.Address, Amount: int64(coin / 2)}
		txID := s.net.PayMany(t, half, rig.MoneroOutput{Address: other.Address, Amount: int64(coin)}, half)
		s.settle()
		s.want(twice, card.AwaitingPayment, card.Detected, coin, 0)
		s.want(other, card.AwaitingPayment, card.Detected, coin, 0)
		s.net.Confirm(t, txID, 10)
		s.settle()
		s.want(twice, card.Generated, card.Paid, coin, 10)
		s.want(other, card.Generated, card.Paid, coin, 10)
		for _, r := range s.facts(twice, other) {
			if len(r.Transfers) != 1 || r.Transfers[0].TxID != txID {
				t.Errorf("transfers: %+v", r.Transfers)
			}
		}
		s.wantIssued(2)
		s.wantMoney(ledger{Counted: 2 * coin, Made: 2 * coin, Paid: 2, Issued: 2})
	})
}

func TestWatcher_MoneroMempoolDoubleSpend_IsUncounted(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		txs := s.net.Conflict(t, c.Address, s.net.Address)
		check(t, s.net.Send(t, txs[0]))
		s.settle()
		s.want(c, card.AwaitingPayment, card.Detected, card.Amount(txs[0].Amount), 0)
		if s.net.Send(t, txs[1]) == nil {
			t.Fatal("the node accepted a double spend")
		}
		s.net.DropMempool(t)
		check(t, s.net.Send(t, txs[1]))
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.net.Confirm(t, txs[1].TxID, 10)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.wantIssued(0)
		if got := s.unattributed(); got[txs[1].TxID] != card.Amount(txs[1].Amount) || got[txs[0].TxID] != 0 {
			t.Errorf("of no card: %d of one, %d of the other", got[txs[1].TxID], got[txs[0].TxID])
		}
		s.wantMoney(ledger{})
		s.paid(c, coin, 10) // the address is valid nevertheless
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		s.wantMoney(ledger{Counted: coin, Made: coin, Paid: 1, Issued: 1})
	})
}

func TestWatcher_MoneroMoneyForNoCard_IsListed(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		s.settle()
		before := s.unattributed()
		var integrated struct {
			Address string `json:"integrated_address"`
		}
		var account struct{ Address string }
		s.net.Wallet.Call(t, "make_integrated_address", nil, &integrated)
		s.net.Wallet.Call(t, "create_account", nil, &account)
		want := map[string]card.Amount{}
		for amount, address := range map[card.Amount]string{coin: s.net.Address, 2 * coin: integrated.Address,
			3 * coin: account.Address} {
			want[s.net.Pay(t, address, int64(amount))] = amount
		}
		s.net.MineTo(t, s.net.Address, 1) // a coinbase
		for txID := range want {
			s.net.Confirm(t, txID, 10)
		}
		s.settle()
		got := s.unattributed()
		var coinbases, sum card.Amount
		for txID, amount := range got {
			if before[txID] == amount {
				continue
			}
			sum += amount
			if _, known := want[txID]; !known {
				coinbases++
				want[txID] = amount
			}
		}
		for txID, amount := range want {
			if got[txID] != amount {
				t.Errorf("%s: %d, want %d", txID, got[txID], amount)
			}
		}
		if coinbases != 1 || sum < 6*coin {
			t.Errorf("%d coinbases, %d in all", coinbases, sum)
		}
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.wantIssued(0)
		s.wantMoney(ledger{})
	})
}

func TestWatcher_MoneroBurntOutputs_CountOnce(t *testing.T) {
	t.Parallel()
	// Two outputs with the same one-time key can be spent once. No wallet makes
	// such outputs, so the merchant's answer is edited: for the second one it
	// shows only by how much it is larger, if at all.
	const larger, smaller = int64(coin), int64(coin / 4)
	var entries []any
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		height, at := s.top()
		for i, tt := range []struct {
			name    string
			amounts []int64 // one per entry, in separate transactions
			twice   bool    // the transaction is listed twice
			want    card.Amount
		}{
			{"the larger first", []int64{larger}, false, coin},
			{"the smaller first", []int64{smaller, larger - smaller}, false, coin},
			{"the same amount again", []int64{smaller}, false, coin / 4},
			{"one transaction twice", []int64{smaller, smaller}, true, coin / 4},
		} {
			c := s.order()
			var index struct{ Index map[string]any }
			s.net.Wallet.Call(t, "get_address_index", map[string]any{"address": c.Address}, &index)
			for j, amount := range tt.amounts {
				block, txID := height-12+int64(j), fmt.Sprintf("%062x%x%x", 0, i, j)
				if tt.twice {
					block, txID = height-12, fmt.Sprintf("%064x", i)
				}
				entries = append(entries,
					map[string]any{"address": c.Address, "amount": amount, "confirmations": height + 1 - block,
						"double_spend_seen": false, "height": block, "locked": false, "subaddr_index": index.Index,
						"timestamp": at.Unix(),
						"txid":      txID, "type": "in", "unlock_time": 0})
			}
			s.settle()
			status, state := card.Generated, card.Paid
			if tt.want < coin {
				status, state = card.AwaitingPayment, card.Underpaid
			}
			if got := s.want(c, status, state, tt.want, s.confirmations(c)); got.Received != tt.want {
				t.Errorf("%s: %d is credited, %d can be spent", tt.name, got.Received, tt.want)
			}
		}
		s.wantIssued(2)
		s.wantMoney(ledger{Counted: 2*coin + coin/2, Made: 2 * coin, Open: coin / 2, Paid: 2, Issued: 2})
	}, func(s *moneroFixture) {
		s.wallet.Target(edited(t, s.net.WalletURL, func(method string, result map[string]any) {
			if in, _ := result["in"].([]any); method == "get_transfers" {
				result["in"] = append(in, entries...)
			}
		}))
	})
}
