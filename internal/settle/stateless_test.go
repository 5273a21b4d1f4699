package settle_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
)

// pebble is a coin that exists only in these tests.
var pebble = card.Currency{Code: "pebble", Name: "Pebble", Decimals: 8, Confirmations: 2, BlockTime: 10 * time.Minute,
	AmountKey: "amount"}

// pebbleNet is the network of pebbles: public blocks, and no wallet.
type pebbleNet struct {
	blocks []string // hashes; blocks[i] has the height i+1
	paid   []card.Transfer
	down   bool
	now    func() time.Time
}

// pay mines a payment.
func (q *pebbleNet) pay(address string, amount card.Amount) {
	q.mine()
	q.paid = append(q.paid,
		card.Transfer{Currency: pebble.Code, TxID: fmt.Sprint("t", len(q.paid)), Address: address, Amount: amount,
			Height:      int64(len(q.blocks)),
			FirstSeenAt: q.now()})
}

func (q *pebbleNet) mine() { q.blocks = append(q.blocks, fmt.Sprint("b", len(q.blocks)+1)) }

// derivedChain is a chain without a wallet: it derives addresses from a public
// key and scans the blocks itself. It keeps no state between calls, so every
// call uses a new one.
type derivedChain struct{ q *pebbleNet }

func derive(position int64) string {
	return fmt.Sprintf("p%x", sha256.Sum256(fmt.Appendf(nil, "public key/%d", position)))[:30]
}

func (derivedChain) Currency() card.Currency { return pebble }

func (d derivedChain) Scan(_ context.Context, q settle.Query) (settle.View, error) {
	if d.q.down {
		return settle.View{}, fmt.Errorf("%w: down", card.ErrChainNotReady)
	}
	height := int64(len(d.q.blocks))
	kept := int64(0)
	for _, k := range q.Known {
		if k.Height <= height && d.q.blocks[k.Height-1] == k.Hash {
			kept = max(kept, k.Height)
		}
	}
	v := q.View(kept)
	v.Fingerprint, v.Tip = "pebbles of public key", card.Tip{Height: height, Hash: d.q.blocks[height-1], Time: d.q.now()}
	ours := map[string]bool{}
	for position := range q.Newest + 1 {
		ours[derive(position)] = true
	}
	for _, t := range d.q.paid {
		if ours[t.Address] && v.Covers(t.Height) {
			v.Transfers = append(v.Transfers, t)
		}
	}
	return v, nil
}

func (d derivedChain) NewAddresses(_ context.Context, after int64, n int) ([]settle.Address, error) {
	made := make([]settle.Address, n)
	for i := range made {
		position := after + 1 + int64(i)
		made[i] = settle.Address{Currency: pebble.Code, Address: derive(position), Position: position}
	}
	return made, nil
}

func (derivedChain) Reserve(context.Context, int64, int) (bool, error) { return true, nil }

func (d derivedChain) Holds(_ context.Context, newest settle.Address) error {
	if derive(newest.Position) != newest.Address {
		return card.ErrWrongChain
	}
	return nil
}

func (derivedChain) Beacon(context.Context) (settle.Beacon, error) { return settle.Beacon{}, nil }

func (derivedChain) SetBeacon(context.Context, settle.Beacon, bool) error { return nil }

func (derivedChain) Recover(context.Context, string, *settle.Address, func(string)) error { return nil }

// A chain without state between calls can implement the interface: the store
// provides positions and the range of addresses to scan for.
func TestWatcher_StatelessChain(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.coins(append(chain.Currencies(), pebble))
		q := &pebbleNet{now: s.clock}
		q.mine()
		orders, err := order.New(s.store, s.vault, s.rates, nil, func() {}, order.Config{
			Currencies: []card.Currency{pebble}, Now: s.clock})
		check(t, err)
		tick := func() { // by a process that has just started
			t.Helper()
			w := s.watch(derivedChain{q}, settle.Config{FillBatch: 50})
			check(t, w.Tick(t.Context()))
			check(t, w.Close(t.Context()))
		}
		for range 4 {
			tick()
		}
		pool, err := s.store.AddressPool(t.Context(), pebble.Code)
		check(t, err)
		if pool.Free != 200 || pool.Newest.Position != 199 {
			t.Fatalf("%d addresses are free, the newest is %d", pool.Free, pool.Newest.Position)
		}
		var cards []*card.Card
		seen := map[string]bool{}
		for range 70 {
			o, wrong := orders.Check(order.Request{USDAmount: "150", Currency: pebble.Code})
			if len(wrong) > 0 {
				t.Fatal(wrong)
			}
			c, _, err := orders.CreateCard(t.Context(), s.account, o, "")
			check(t, err)
			if seen[c.Address] {
				t.Fatalf("address %s twice", c.Address)
			}
			seen[c.Address] = true
			cards = append(cards, c)
		}
		first, last := cards[0], cards[69]
		q.pay(first.Address, first.Amount)
		q.pay(last.Address, last.Amount-1)
		q.pay(derive(10_000), 5) // its address was never made
		tick()
		q.pay(last.Address, 1)
		tick()
		for range 3 {
			q.mine()
		}
		tick()
		for _, c := range []*card.Card{first, last} {
			s.want(c, card.AwaitingPayment, card.Paid, c.Amount,
				int64(len(q.blocks))-map[*card.Card]int64{first: 2, last: 5}[c]+1)
		}
		s.settle()
		s.want(first, card.Generated, card.Paid, first.Amount, int64(len(q.blocks))-1)
	})
}

// A coin whose node is down gets no new addresses and is unhealthy; other coins
// continue.
func TestWatcher_OneCoinFails_OthersContinue(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.coins(append(chain.Currencies(), pebble))
		q := &pebbleNet{now: s.clock}
		q.mine()
		w := s.watch(derivedChain{q}, settle.Config{FillBatch: 200})
		check(t, w.Tick(t.Context()))
		orders, err := order.New(s.store, s.vault, s.rates, nil, func() {},
			order.Config{Currencies: append(chain.Currencies(), pebble), Now: s.clock, MaxBlind: time.Minute})
		check(t, err)
		create := func(code string) error {
			o, wrong := orders.Check(order.Request{USDAmount: "150", Currency: code})
			if len(wrong) > 0 {
				t.Fatal(wrong)
			}
			_, _, err := orders.CreateCard(t.Context(), s.account, o, "")
			return err
		}
		check(t, orders.Prepare(t.Context()))
		s.now = s.now.Add(2 * time.Second)
		s.tick() // its order service has now seen the marks grow
		check(t, w.Tick(t.Context()))
		check(t, orders.Prepare(t.Context()))
		q.down = true
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrChainNotReady) || w.Health() == nil {
			t.Errorf("error %v, health %v", err, w.Health())
		}
		// as if time had passed
		_, err = rig.OpenSQL(t, s.url).Exec("UPDATE address_pools SET checked_at = 0 WHERE currency = 'pebble'")
		check(t, err)
		if err := orders.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
		if err := create(pebble.Code); !errors.Is(err, card.ErrNoAddress) {
			t.Errorf("the sick coin: %v", err)
		}
		if err := create("monero"); err != nil {
			t.Errorf("the other coin: %v", err)
		}
	})
}
