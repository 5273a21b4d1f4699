package settle_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
)

// captured is a watcher's log, and the loops it wakes.
type captured struct {
	log   bytes.Buffer
	wakes []string
	won   int // renewals of the lease
}

// listen returns a watcher of the same process as s, and captures its output.
func (s *fixture) listen(db settle.Store, c settle.Chain) (*settle.Watcher, *captured) {
	s.t.Helper()
	h := &captured{}
	wake := settle.Wake{
		Pass:   func() {},
		Orders: func() { h.wakes = append(h.wakes, "wakes the orders") },
		Issuer: func() { h.wakes = append(h.wakes, "wakes the issuer") },
		Sender: func() { h.wakes = append(h.wakes, "wakes the sender") },
	}
	log := slog.New(slog.NewTextHandler(&h.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	w, err := settle.New(db, s.rates, c, wake, log,
		settle.Config{PoolSize: 200, FillBatch: 200, CompareEvery: -1, Replica: s.name, Now: s.clock})
	check(s.t, err)
	return w, h
}

const leaseWon = `level=INFO msg="lease acquired: this process watches the chain" currency=monero fence=`

// want compares the output since the last call, except for the first lease.
func (h *captured) want(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(h.log.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, leaseWon) {
			h.won++
			continue
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, append(got, h.wakes...)); diff != "" {
		t.Errorf("log and wakes (-want +got):\n%s", diff)
	}
	h.log.Reset()
	h.wakes = nil
}

func TestWatcher_PassWithChanges_LogsAndWakes(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		exact, short := s.order(), s.order()
		w, heard := s.listen(s.store, s.chain)
		pass := func(want ...string) {
			t.Helper()
			check(t, w.Tick(t.Context()))
			heard.want(t, want...)
		}
		applied := func(transfers, unattributed, cards, paid int) string {
			height, _, _, err := s.store.SimulatedScan(t.Context(), "monero", 0, nil)
			check(t, err)
			return fmt.Sprintf(
				"level=INFO msg=\"chain applied\" currency=monero height=%d transfers=%d unattributed=%d cards=%d paid=%d",
				height, transfers, unattributed, cards, paid)
		}
		news := func(level, what string, c *card.Card, from, to card.PaymentState) string {
			return fmt.Sprintf("level=%s msg=\"%s\" card=%s currency=monero state=%s before=%s", level, what, c.UUID, to, from)
		}
		pass("wakes the orders") // without a change, but with new addresses
		s.mine(1)
		pass() // a block without our transfers

		s.pay(exact, coin, 9)
		pass(applied(1, 0, 1, 0), news("INFO", "payment seen", exact, card.Unpaid, card.Confirming), "wakes the sender")
		s.mine(1) // the last confirmation is a transition, although no transfer changed
		pass(applied(0, 0, 1, 1), news("INFO", "payment confirmed", exact, card.Confirming, card.Paid), "wakes the sender",
			"wakes the issuer")
		pass()

		for range 2 {
			_, err := s.chain.Pay(t.Context(), "an address of no card", coin, 1)
			check(t, err)
		}
		pass(applied(2, 2, 0, 0), "level=WARN msg=\"payments to addresses without a card\" currency=monero transfers=2")

		s.pay(short, coin/2, 10)
		pass(applied(1, 0, 1, 0), news("INFO", "payment seen", short, card.Unpaid, card.Underpaid), "wakes the sender")
		s.now = s.now.Add(3 * time.Hour) // underpaid and expired
		if heard.won != 1 {
			t.Errorf("%d leases acquired", heard.won)
		}
		pass(news("ERROR", "payment needs an operator", short, card.Underpaid, card.Late), "wakes the sender")
		pass()
		s.settle()
		s.want(exact, card.Generated, card.Paid, coin, 22)
	})
}

// An attributed transfer stays the card's, regardless of later changes.
func TestWatcher_AttributedTransfer_CountsForCard(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		c := s.order()
		_, err := s.chain.Pay(t.Context(), "an address of no card", coin/2, 10)
		check(t, err)
		check(t, s.watcher.Tick(t.Context()))
		found, err := s.store.Unattributed(t.Context(), 1)
		check(t, err)
		_, err = s.desk.AttributeTransfer(t.Context(),
			operator.AttributionDecision{Coin: chain.Currencies()[0], TxID: found[0].TxID, Kind: operator.ToCard,
				CardUUID: c.UUID, Note: "n", Operator: "o"})
		check(t, err)
		w, heard := s.listen(s.store, s.chain)
		pass := func(change string) {
			t.Helper()
			check(t, w.Tick(t.Context()))
			log := heard.log.String()
			if !strings.Contains(log, "transfers=1 unattributed=0 cards=1") || strings.Contains(log, "no card") {
				t.Errorf("%s: %s", change, log)
			}
			heard.log.Reset()
		}
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 12, false))
		pass("back in the mempool")
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/2, 0)
		_, err = s.chain.Pay(t.Context(), "an address of no card", 0, 10)
		check(t, err)
		pass("in another block")
		s.want(c, card.AwaitingPayment, card.Underpaid, coin/2, 10)
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 12, true))
		pass("gone")
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
	})
}
