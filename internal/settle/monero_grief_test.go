package settle_test

import (
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
)

func TestWatcher_MoneroDustLockedForYears_DoesNotStopCard(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		paid, late := s.order(), s.order()
		years := uint64(s.net.Height(t) + 400_000)
		s.net.PayLocked(t,
			rig.MoneroLocked{UnlockTime: years, MoneroOutput: rig.MoneroOutput{Address: paid.Address, Amount: 1}},
			rig.MoneroLocked{UnlockTime: years, MoneroOutput: rig.MoneroOutput{Address: late.Address, Amount: 1}})
		s.mine(1)
		s.paid(paid, coin, few)
		s.settle()
		s.want(paid, card.Generated, card.Paid, coin+1, few)

		s.expire(late, time.Now())
		s.rates.usd = "149"
		s.mineAfter(time.Now().Truncate(time.Second).Add(time.Second))
		s.settle()
		s.paid(late, coin/2, few)
		s.settle()
		s.want(late, card.AwaitingPayment, card.Late, coin/2+1, few)
		if done := s.resolve(late, operator.Accept); done.Resolution.Amount != coin/2 || done.After != card.Paid {
			t.Errorf("accepted: %+v", done)
		}
		s.settle()
		s.want(late, card.Generated, card.Paid, coin/2+1, s.confirmations(late))
		s.wantIssued(2)
	}, fewConfirmations)
}

func TestWatcher_MoneroDustInEachBlock_DoesNotDelayCard(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c, back := s.order(), s.order()
		s.expire(back, time.Now())
		s.mineAfter(time.Now().Truncate(time.Second).Add(time.Second))
		s.settle()
		both := s.net.PayMany(t, rig.MoneroOutput{Address: c.Address, Amount: int64(coin)},
			rig.MoneroOutput{Address: back.Address, Amount: int64(coin / 2)})
		s.net.Confirm(t, both, 1)
		for n := int64(1); n < few; n++ {
			s.settle()
			s.want(c, card.AwaitingPayment, card.Confirming, coin+card.Amount(n-1), n)
			s.net.Confirm(t,
				s.net.PayMany(t, rig.MoneroOutput{Address: c.Address, Amount: 1},
					rig.MoneroOutput{Address: back.Address, Amount: 1}), 1)
		}
		s.settle()
		s.want(c, card.Generated, card.Paid, coin+few-1, few)
		s.want(back, card.AwaitingPayment, card.Late, coin/2+few-1, 1)
		if done := s.resolve(back, operator.Refund); done.Resolution.Amount != coin/2 {
			t.Errorf("refunded: %+v", done)
		}
		s.wantIssued(1)
	}, fewConfirmations)
}

func TestWatcher_MoneroBackdatedBlock_PaysTodaysRate(t *testing.T) {
	t.Parallel()
	onMonero(t, func(t *testing.T, s *moneroFixture) {
		c := s.order()
		s.mine(40) // the median of the last 60 blocks is one of these
		_, at := s.top()
		s.expire(c, at.Add(2*time.Second))
		s.mineAfter(at.Add(3 * time.Second))
		s.settle()
		s.want(c, card.AwaitingPayment, card.Expired, 0, 0)
		s.rates.usd = "149"
		s.pay(c, coin)
		s.net.MineAt(t, at.Add(time.Second))
		if _, dated := s.top(); !dated.Equal(at.Add(time.Second)) {
			t.Fatalf("the block is from %s", dated)
		}
		s.settle()
		s.want(c, card.AwaitingPayment, card.Confirming, coin, 1) // it remains expired
		s.mine(few)
		s.settle()
		s.want(c, card.AwaitingPayment, card.Late, coin, few+1)
	}, fewConfirmations)
}
