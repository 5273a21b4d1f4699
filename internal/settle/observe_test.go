package settle_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cardmint/cardmint/internal/settle"
)

func TestObserve_CalledAfterEachTick(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		var fault error
		var got settle.Report
		observe := func(r settle.Report) { got = r }
		w := s.watch(slowScan{Chain: s.chain, scan: func(context.Context) error { return fault }},
			settle.Config{FillBatch: 200, Observe: observe})
		check(t, w.Tick(t.Context()))
		check(t, w.Tick(t.Context()))
		if !got.Leads || !got.Applied || got.Err != nil || got.Behind != 0 || got.Transfers != 0 {
			t.Errorf("a pass without changes: %+v", got)
		}
		height := got.Tip.Height
		c := s.order()
		s.pay(c, c.Amount, 2)
		check(t, w.Tick(t.Context()))
		if !got.Applied || got.Transfers != 1 || got.Behind < 1 || got.Tip.Height != height+got.Behind {
			t.Errorf("a pass with a payment, after height %d: %+v", height, got)
		}
		fault = errFault
		if err := w.Tick(t.Context()); !errors.Is(err, errFault) || !errors.Is(got.Err, errFault) || got.Applied ||
			got.Transfers != 0 || !got.Leads {
			t.Errorf("a pass that failed: %+v", got)
		}
		s.name = "another process"
		check(t, s.watch(s.chain, settle.Config{FillBatch: 200, Observe: observe}).Tick(t.Context()))
		if got.Leads || got.Err != nil || got.Applied {
			t.Errorf("a standby: %+v", got)
		}
	})
}
