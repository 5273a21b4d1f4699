package settle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
)

// slowScan is a chain whose scans take as long as the test requires.
type slowScan struct {
	settle.Chain
	scan, ahead, create func(ctx context.Context) error // nil: no wait
}

func (l slowScan) Scan(ctx context.Context, q settle.Query) (settle.View, error) {
	if l.scan != nil {
		if err := l.scan(ctx); err != nil {
			return settle.View{}, err
		}
	}
	return l.Chain.Scan(ctx, q)
}

func (l slowScan) Holds(ctx context.Context, newest settle.Address) error {
	if l.ahead != nil {
		if err := l.ahead(ctx); err != nil {
			return err
		}
	}
	return l.Chain.Holds(ctx, newest)
}

func (l slowScan) NewAddresses(ctx context.Context, after int64, n int) ([]settle.Address, error) {
	if l.create != nil {
		if err := l.create(ctx); err != nil {
			return nil, err
		}
	}
	return l.Chain.NewAddresses(ctx, after, n)
}

// sibling returns a watcher of another process on the same database; s itself
// releases the chain.
func (s *fixture) sibling(db settle.Store, c settle.Chain, ttl time.Duration) *settle.Watcher {
	s.t.Helper()
	check(s.t, s.watcher.Close(s.t.Context()))
	w, err := settle.New(db, s.rates, c, wakesNothing(), quiet,
		settle.Config{PoolSize: 200, CompareEvery: -1, Now: s.clock, LeaseTTL: ttl})
	check(s.t, err)
	return w
}

// outlast waits until the lease would have expired without a renewal.
func (s *fixture) outlast(ctx context.Context) error {
	db := rig.OpenSQL(s.t, s.url)
	expiry := func() (at int64) {
		check(s.t, db.QueryRow("SELECT expires_at FROM leases WHERE name = 'watch monero'").Scan(&at))
		return at
	}
	first, again := expiry(), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for time.Now().UnixMilli() <= first+100 { // the databases use this machine's clock
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func TestWatcher_PassLongerThanLease_KeepsChain(t *testing.T) {
	for _, slow := range []string{"Scan", "Holds", "NewAddresses"} {
		t.Run(slow, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				c := s.order()
				s.pay(c, coin, 10)
				waited := 0
				wait := func(ctx context.Context) error {
					waited++
					if err := s.outlast(ctx); err != nil {
						return err
					}
					s.tick() // stands by
					return nil
				}
				chain := slowScan{Chain: s.chain}
				switch slow {
				case "Scan":
					chain.scan = wait
				case "Holds":
					chain.ahead = wait
				case "NewAddresses":
					chain.create = wait
				}
				w := s.sibling(s.store, chain, 4*time.Second)
				check(t, w.Tick(t.Context()))
				s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
				if waited != 1 {
					t.Errorf("waited %d times", waited)
				}
				check(t, w.Close(t.Context()))
			})
		})
	}
}

func TestWatcher_LeaseLost_CancelsPass(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		w := s.sibling(s.store, slowScan{Chain: s.chain, scan: func(ctx context.Context) error {
			expireLeases(t, s)
			s.tick() // takes over
			<-ctx.Done()
			return ctx.Err()
		}}, 4*time.Second) // renewed after a second, long after it was acquired
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := w.Tick(ctx); !errors.Is(err, card.ErrFenced) || ctx.Err() != nil {
			t.Errorf("error %v", err)
		}
		s.tick()
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
	})
}

func TestWatcher_DatabaseHangs_LosesLease(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		w := s.sibling(slowStore{s.store, func() {
			check(t, s.outlast(t.Context()))
			s.tick() // takes over
			s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		}}, s.chain, 400*time.Millisecond)
		if err := w.Tick(t.Context()); !errors.Is(err, card.ErrFenced) {
			t.Errorf("error %v", err)
		}
	})
}

func TestWatcher_PassesFail_YieldsLease(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		c := s.order()
		s.pay(c, coin, 10)
		cut := errors.New("no route to the node")
		w := s.sibling(s.store, slowScan{Chain: s.chain, scan: func(context.Context) error { return cut }}, 30*time.Second)
		for _, wait := range []time.Duration{0, 29 * time.Second} {
			s.now = s.now.Add(wait)
			if err := w.Tick(t.Context()); !errors.Is(err, cut) {
				t.Errorf("error %v", err)
			}
			s.tick() // stands by: a failing process may recover soon
			s.want(c, card.AwaitingPayment, card.Unpaid, 0, 0)
		}
		s.now = s.now.Add(time.Second)
		if err := w.Tick(t.Context()); !errors.Is(err, cut) || w.Health() == nil {
			t.Errorf("error %v, health %v", err, w.Health())
		}
		s.tick() // takes over
		s.want(c, card.AwaitingPayment, card.Paid, coin, 10)
		check(t, w.Tick(t.Context())) // stands by
	})
}

// slowStore is a database that answers its worker late.
type slowStore struct {
	*store.Store
	meanwhile func()
}

func (h slowStore) Cursor(ctx context.Context, coin card.Currency) (settle.Cursor, error) {
	h.meanwhile()
	return h.Store.Cursor(ctx, coin)
}
