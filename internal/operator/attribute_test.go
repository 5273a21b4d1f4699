package operator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
)

// forget deletes a card without activity from the database, as a restore of an
// older backup does.
func (s *fixture) forget(c *card.Card) {
	s.t.Helper()
	s.exec("DELETE FROM cards WHERE uuid = '" + c.UUID.String() + "'")
}

// payStray pays to the address of a forgotten card, and returns the transfer.
func (s *fixture) payStray(amount card.Amount, confirmations int) operator.Arrival {
	s.t.Helper()
	c := s.order()
	s.forget(c)
	s.pay(c, amount, confirmations)
	s.tick()
	return s.transfersTo(c.Address)[0]
}

// transfersTo returns the transfers to an address, last seen first.
func (s *fixture) transfersTo(address string) (found []operator.Arrival) {
	s.t.Helper()
	all, err := s.store.Strays(s.t.Context(), 1000)
	check(s.t, err)
	for _, a := range all {
		if a.Address == address {
			found = append(found, a)
		}
	}
	return found
}

// decision returns a decision about a transfer.
func (s *fixture) decision(a operator.Arrival, kind operator.AttributionKind) operator.AttributionDecision {
	return operator.AttributionDecision{Coin: chain.Currencies()[0], TxID: a.TxID, Output: a.Output, Kind: kind,
		Note: "the backup was old", Operator: "alice"}
}

func (s *fixture) attribute(d operator.AttributionDecision) operator.Attributed {
	s.t.Helper()
	done, err := s.service.AttributeTransfer(s.t.Context(), d)
	check(s.t, err)
	return done
}

func (s *fixture) toCard(a operator.Arrival, c *card.Card) operator.AttributionDecision {
	d := s.decision(a, operator.ToCard)
	d.CardUUID = c.UUID
	return d
}

func (s *fixture) toNew(a operator.Arrival) operator.AttributionDecision {
	d := s.decision(a, operator.ToNewCard)
	d.AccountID, d.USD = s.account, 150_00
	return d
}

func (s *fixture) wantUnattributed(n int) {
	s.t.Helper()
	found, err := s.store.Unattributed(s.t.Context(), 100)
	check(s.t, err)
	if len(found) != n {
		s.t.Errorf("%d transfers are unattributed, want %d: %+v", len(found), n, found)
	}
}

func TestAttribute_ToCard_IssuedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		a, c := s.payStray(coin, 10), s.order()
		s.wantBooks(ledger{Counted: coin, Unattributed: coin})
		d := s.toCard(a, c)
		d.DryRun = true
		if done := s.attribute(d); done.Amount != coin || done.Card.State != card.Unpaid || done.After != card.Paid ||
			done.Unchanged {
			t.Errorf("%+v", done)
		}
		s.settle()
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0) // dry run
		d.DryRun = false
		if done := s.attribute(d); done.Amount != coin || done.Card.State != card.Unpaid || done.After != card.Paid ||
			done.Unchanged {
			t.Errorf("%+v", done)
		}
		s.wantUnattributed(0)
		s.wantBooks(ledger{Counted: coin, Open: coin, Paid: 1})
		s.settle()
		s.want(c, card.Generated, card.Paid, coin, 10)
		if done := s.attribute(d); !done.Unchanged || done.After != card.Paid {
			t.Errorf("repeated: %+v", done)
		}
		s.settle()
		s.wantIssued(1)
		s.wantBooks(ledger{Counted: coin, Made: coin, Paid: 1, Issued: 1})
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		if len(record.Transfers) != 1 || record.Transfers[0].TxID != a.TxID || len(record.Events) != 2 {
			t.Errorf("%+v", record)
		}
		if r := record.Resolutions; len(r) != 1 || r[0].Kind != operator.Attribute || r[0].Operator != "alice" ||
			r[0].Note != d.Note || r[0].Amount != coin || r[0].CreatedAt.IsZero() {
			t.Errorf("stored: %+v", r)
		}
		if kept := s.transfersTo(a.Address)[0].Attribution; kept == nil || kept.CardUUID != c.UUID ||
			kept.Kind != operator.ToCard || kept.Operator != "alice" || kept.Amount != coin {
			t.Errorf("stored: %+v", kept)
		}
		if log := s.log.String(); strings.Count(log, "operator attributed a transfer") != 1 ||
			!strings.Contains(log, a.TxID) {
			t.Error(log)
		}
	})
}

func TestAttribute_UnderpaidCard_Completed(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin/2, 10)
		first, second := s.payStray(coin/4, 10), s.payStray(coin/4+7, 10)
		if done := s.attribute(s.toCard(first, c)); done.Card.State != card.Underpaid || done.After != card.Underpaid {
			t.Errorf("%+v", done)
		}
		s.settle()
		s.want(c, card.AwaitingPayment, card.Underpaid, coin*3/4, 20)
		if done := s.attribute(s.toCard(second, c)); done.After != card.Paid {
			t.Errorf("%+v", done)
		}
		s.settle()
		s.want(c, card.Generated, card.Paid, coin+7, 10)
		s.wantIssued(1)
		s.wantBooks(ledger{Counted: coin + 7, Made: coin, Surplus: 7, Paid: 1, Issued: 1})
	})
}

// Money that was first seen after the quote expired pays for the card only at
// today's rate.
func TestAttribute_LateMoney_IsLate(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		enough, little := s.order(), s.order()
		s.now = s.now.Add(3 * time.Hour)
		s.mine(1)
		s.tick()
		a, b := s.payStray(coin, 10), s.payStray(coin, 10)
		if done := s.attribute(s.toCard(a, enough)); done.Card.State != card.Expired || done.After != card.Paid {
			t.Errorf("%+v", done)
		}
		s.rates.usd = "" // the operator's process may have no rate
		if done := s.attribute(s.toCard(b, little)); done.After != card.Confirming {
			t.Errorf("%+v", done)
		}
		s.rates.usd = "100"
		s.mine(1)
		s.settle()
		s.want(enough, card.Generated, card.Paid, coin, 21)
		s.want(little, card.AwaitingPayment, card.Late, coin, 11)
		s.resolve(little, operator.Accept)
		s.settle()
		s.wantIssued(2)
	})
}

func TestAttribute_LeavesChain_NoLongerCounted(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		a, waiting, issued := s.payStray(coin, 10), s.order(), s.order()
		b := s.payStray(coin, 10)
		s.attribute(s.toCard(b, issued))
		s.settle()
		s.want(issued, card.Generated, card.Paid, coin, 10)
		s.attribute(s.toCard(a, waiting)) // not issued yet
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 25, false))
		s.tick()
		s.want(waiting, card.AwaitingPayment, card.Detected, coin, 0)
		s.want(issued, card.Generated, card.Paid, coin, 0)
		s.reconcile()
		s.exec("DELETE FROM simulated_transfers")
		s.settle()
		s.want(waiting, card.AwaitingPayment, card.Unpaid, 0, 0)
		s.want(issued, card.Generated, card.Reversed, 0, 0)
		s.wantIssued(1)
		s.discrepancies = []string{lost}
		s.reconcile()
		s.wantBooks(ledger{Lost: coin, Paid: 1, Issued: 1})
		if _, err := s.service.AttributeTransfer(t.Context(), s.toCard(a, s.order())); !errors.Is(err, operator.ErrAttributed) {
			t.Errorf("attributed a transfer that left the chain: %v", err)
		}
	})
}

func TestAttribute_ToNewCard_CardRecreated(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		forgotten := s.order()
		s.forget(forgotten)
		s.exec("DELETE FROM addresses WHERE address = '" + forgotten.Address + "'")
		s.pay(forgotten, coin/4, 10)
		s.pay(forgotten, coin/2, 10)
		s.settle()
		s.now = s.now.Add(time.Second)
		parts := s.transfersTo(forgotten.Address)
		d := s.toNew(parts[0])
		d.DryRun = true
		s.attribute(d)
		s.wantUnattributed(2)
		d.DryRun = false
		done := s.attribute(d)
		c := done.Card
		if done.Amount != coin*3/4 || done.After != card.Paid || c.UUID == forgotten.UUID ||
			c.Address != forgotten.Address || c.USD != 150_00 || c.Amount != coin*3/4 {
			t.Errorf("%+v, %+v", done, c)
		}
		if want := (card.Decimal{Units: 200_00000000, Scale: 8}); c.Rate.USD != want || c.Rate.Source != "operator" {
			t.Errorf("rate %+v", c.Rate)
		}
		s.wantUnattributed(0)
		s.settle()
		s.want(c, card.Generated, card.Paid, coin*3/4, 10)
		for _, part := range parts {
			if done := s.attribute(s.toNew(part)); !done.Unchanged || done.Card.UUID != c.UUID {
				t.Errorf("repeated: %+v", done)
			}
		}
		s.pay(c, 5, 10) // another transfer to the same address
		s.settle()
		s.want(c, card.Generated, card.Paid, coin*3/4+5, 20)
		s.wantIssued(1)
		s.wantBooks(ledger{Counted: coin*3/4 + 5, Made: coin * 3 / 4, Surplus: 5, Paid: 1, Issued: 1})
		record, err := s.store.CardDetail(t.Context(), c.UUID)
		check(t, err)
		if len(record.Resolutions) != 2 || len(record.Transfers) != 3 || len(record.Events) != 2 ||
			record.Events[0].Type != card.EventDetected {
			t.Errorf("%+v", record)
		}
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 30, true))
		s.settle()
		s.want(c, card.Generated, card.Reversed, 0, 0)
		s.discrepancies = []string{lost}
	})
}

func TestAttribute_ToNewCard_ExcludesAttributedTransfers(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		forgotten, c := s.order(), s.order()
		s.forget(forgotten)
		for _, amount := range []card.Amount{coin, 10, 100} {
			s.pay(forgotten, amount, 10)
			s.tick()
		}
		kinds := map[card.Amount]func(operator.Arrival) operator.AttributionDecision{
			10:  func(a operator.Arrival) operator.AttributionDecision { return s.decision(a, operator.GiveBack) },
			100: func(a operator.Arrival) operator.AttributionDecision { return s.toCard(a, c) },
		}
		var rest operator.Arrival
		for _, a := range s.transfersTo(forgotten.Address) {
			if decide := kinds[a.Amount]; decide != nil {
				s.attribute(decide(a))
			} else {
				rest = a
			}
		}
		made := s.attribute(s.toNew(rest))
		if made.Amount != coin {
			t.Errorf("%+v", made)
		}
		s.settle()
		s.want(made.Card, card.Generated, card.Paid, coin, 30)
		s.want(c, card.AwaitingPayment, card.Underpaid, 100, 10)
		s.wantBooks(ledger{Counted: coin + 110, Made: coin, Open: 100, Returned: 10, Paid: 1, Issued: 1})
	})
}

func TestAttribute_GiveBack_SummedAsReturned(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.mine(30)
		a := s.payStray(coin, 10)
		d := s.decision(a, operator.GiveBack)
		if done := s.attribute(d); done.Amount != coin || done.Card != nil || done.Unchanged {
			t.Errorf("%+v", done)
		}
		s.wantUnattributed(0)
		s.wantBooks(ledger{Counted: coin, Returned: coin})
		if done := s.attribute(d); !done.Unchanged {
			t.Errorf("repeated: %+v", done)
		}
		for _, other := range []operator.AttributionDecision{s.toCard(a, s.order()), s.toNew(a)} {
			if _, err := s.service.AttributeTransfer(t.Context(), other); !errors.Is(err, operator.ErrAttributed) {
				t.Errorf("%s: %v", other.Kind, err)
			}
		}
		check(t, s.store.SimulatedReorg(t.Context(), "monero", 12, true))
		s.settle()
		s.wantBooks(ledger{Lost: coin})
	})
}

func TestAttribute_InvalidDecision_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		paid, made, open := s.order(), s.order(), s.order()
		s.pay(made, coin, 10)
		s.settle()
		s.pay(paid, coin, 10)
		s.tick()
		good, locked, gone, tiny, attributed := s.payStray(coin, 10), s.payStray(7, 10), s.payStray(coin, 10),
			s.payStray(1, 10),
			s.payStray(3, 10)
		nothing := s.payStray(2, 10)
		s.attribute(s.toCard(attributed, open))
		shallow, pool := s.payStray(coin, 9), s.payStray(coin, 0)
		// Cases that the simulated chain can't produce.
		s.exec("UPDATE transfers SET locked = TRUE WHERE txid = '" + locked.TxID + "'")
		s.exec("UPDATE transfers SET counted = FALSE WHERE txid = '" + gone.TxID + "'")
		s.exec("UPDATE transfers SET amount = 0 WHERE txid = '" + nothing.TxID + "'")
		s.exec("INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES ('bitcoin', 'b', 0, 'b', 5, 1, FALSE, TRUE, 0)")
		s.exec("INSERT INTO chains (currency, fingerprint, height, hash, time) VALUES ('bitcoin', 'f', 100, 'h', 0)")
		bitcoin := s.toCard(operator.Arrival{Transfer: card.Transfer{TxID: "b"}}, open)
		bitcoin.Coin.Code = "bitcoin"
		record, err := s.store.CardDetail(t.Context(), made.UUID)
		check(t, err)
		with := func(d operator.AttributionDecision,
			change func(*operator.AttributionDecision)) operator.AttributionDecision {
			change(&d)
			return d
		}
		saw := coin - 1
		for name, tt := range map[string]struct {
			d    operator.AttributionDecision
			want error
		}{
			"no transfer": {s.decision(operator.Arrival{}, operator.GiveBack), operator.ErrNoTransfer},
			"no output": {with(s.toCard(good, open), func(d *operator.AttributionDecision) { d.Output = 9 }),
				operator.ErrNoTransfer},
			"no card":            {s.toCard(good, &card.Card{UUID: uuid.New()}), card.ErrNoRow},
			"shallow":            {s.toCard(shallow, open), operator.ErrNotConfirmed},
			"shallow, new":       {s.toNew(shallow), operator.ErrNotConfirmed},
			"shallow, give back": {s.decision(shallow, operator.GiveBack), operator.ErrNotConfirmed},
			"in the mempool":     {s.toCard(pool, open), operator.ErrNotConfirmed},
			"locked":             {s.decision(locked, operator.GiveBack), operator.ErrNotConfirmed},
			"left chain":         {s.toNew(gone), operator.ErrLeftChain},
			"paid":               {s.toCard(good, paid), operator.ErrPaid},
			"issued":             {s.toCard(good, made), operator.ErrIssued},
			"of a card": {s.decision(operator.Arrival{Transfer: record.Transfers[0]}, operator.GiveBack),
				operator.ErrCardAddress},
			"of another coin": {bitcoin, operator.ErrAnotherCoin},
			"too small":       {s.toNew(tiny), operator.ErrNoPrice},
			"zero amount":     {s.toNew(nothing), operator.ErrNoPrice},
			"another amount": {with(s.toCard(good, open), func(d *operator.AttributionDecision) { d.Amount = &saw }),
				operator.ErrAnotherAmount},
			"to another card": {s.toCard(attributed, paid), operator.ErrAttributed},
			"to a new card":   {s.toNew(attributed), operator.ErrAttributed},
			"refunded later":  {s.decision(attributed, operator.GiveBack), operator.ErrAttributed},
			"no note":         {with(s.toNew(good), func(d *operator.AttributionDecision) { d.Note = "" }), nil},
			"no operator":     {with(s.toNew(good), func(d *operator.AttributionDecision) { d.Operator = "" }), nil},
			"too little USD":  {with(s.toNew(good), func(d *operator.AttributionDecision) { d.USD = card.MinUSD - 1 }), nil},
			"too much USD":    {with(s.toNew(good), func(d *operator.AttributionDecision) { d.USD = card.MaxUSD + 1 }), nil},
			"unknown kind":    {s.decision(good, "burn"), nil},
			"unknown account": {with(s.toNew(good), func(d *operator.AttributionDecision) { d.AccountID = uuid.New() }), nil},
		} {
			for _, dry := range []bool{true, false} {
				if tt.d.DryRun = dry; dry && name == "unknown account" {
					continue
				}
				done, err := s.service.AttributeTransfer(t.Context(), tt.d)
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%s: %v", name, err)
				}
				if diff := cmp.Diff(operator.Attributed{}, done); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
		}
		s.exec("DELETE FROM transfers WHERE currency = 'bitcoin'")
		s.exec("UPDATE transfers SET counted = TRUE")
		s.settle()
	})
}

// An operator may choose the smallest and the largest balance, as a client may.
func TestAttribute_ToNewCard_MinAndMaxUSD(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		for _, usd := range []card.USD{card.MinUSD, card.MaxUSD} {
			d := s.toNew(s.payStray(coin, 10))
			d.USD = usd
			if done := s.attribute(d); done.Card.USD != usd || done.After != card.Paid {
				t.Errorf("%s US dollars: %+v", usd, done)
			}
		}
		s.settle()
	})
}

func TestAttribute_AnotherAmount_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		forgotten := s.order()
		s.forget(forgotten)
		s.pay(forgotten, coin/2, 10)
		s.tick()
		d := s.toNew(s.transfersTo(forgotten.Address)[0])
		saw := coin / 2
		d.Amount = &saw
		s.pay(forgotten, coin/2, 10) // after the operator read the amount
		s.tick()
		if _, err := s.service.AttributeTransfer(t.Context(), d); !errors.Is(err, operator.ErrAnotherAmount) {
			t.Errorf("%v", err)
		}
		s.wantUnattributed(2)
		saw = coin
		if done := s.attribute(d); done.Amount != coin {
			t.Errorf("%+v", done)
		}
		s.settle()
		s.wantIssued(1)
	})
}

// A second payment that another machine's slow clock dates before the card
// counts as in time.
func TestAttribute_ToNewCardClockBehind_Paid(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		a := s.payStray(coin, 10)
		s.exec("UPDATE transfers SET first_seen_at = first_seen_at + 86400000")
		s.rates.usd = "1"
		done := s.attribute(s.toNew(a))
		if done.After != card.Paid {
			t.Errorf("%+v", done)
		}
		s.settle()
		s.want(done.Card, card.Generated, card.Paid, coin, 10)
	})
}

var errFirst = errors.New("no error: decided first")

func TestAttribute_TwoOperators_OneDecides(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		for range 5 {
			a, one, two := s.payStray(coin, 10), s.order(), s.order()
			decisions := []operator.AttributionDecision{s.toCard(a, one), s.toCard(a, two), s.toNew(a),
				s.decision(a, operator.GiveBack), s.toCard(a, one), s.toNew(a)}
			results := make(chan error, len(decisions))
			for _, d := range decisions {
				go func() {
					done, err := s.service.AttributeTransfer(context.WithoutCancel(t.Context()), d)
					if err == nil && !done.Unchanged {
						err = errFirst
					}
					results <- err
				}()
			}
			first := 0
			for range decisions {
				switch err := <-results; {
				case errors.Is(err, errFirst):
					first++
				case err != nil && !errors.Is(err, operator.ErrAttributed):
					t.Errorf("%v", err)
				}
			}
			if first != 1 {
				t.Errorf("%d operators decided first, want 1", first)
			}
			s.settle()
			s.reconcile()
		}
	})
}

// An attribution waits for a pass that has removed the transfer and not
// committed yet.
func TestAttribute_DuringPass_Waits(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		a, c := s.payStray(coin, 10), s.order()
		check(t, s.watcher.Close(t.Context())) // another process takes over
		l, err := s.store.AcquireLease(t.Context(), settle.LeaseName("monero"), "worker", time.Minute)
		check(t, err)
		result := make(chan error, 1)
		check(t, s.store.SettleTx(t.Context(), func(tx settle.Tx) error {
			if err := tx.CheckLease(t.Context(), l); err != nil {
				return err
			}
			gone := a.Transfer
			gone.Counted = false
			if err := tx.UpsertTransfers(t.Context(), []card.Transfer{gone}); err != nil {
				return err
			}
			if cards, err := tx.LockCards(t.Context(), "monero", []string{a.Address}, card.Tip{}); err != nil || len(cards) > 0 {
				t.Errorf("%v, %v", cards, err)
			}
			go func() {
				_, err := s.service.AttributeTransfer(context.WithoutCancel(t.Context()), s.toCard(a, c))
				result <- err
			}()
			select {
			case err := <-result:
				t.Errorf("did not wait: %v", err)
				result <- err
			case <-time.After(300 * time.Millisecond): // waits, or has not started
			}
			return nil
		}))
		if err := <-result; !errors.Is(err, operator.ErrLeftChain) {
			t.Errorf("%v", err)
		}
		s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
	})
}
