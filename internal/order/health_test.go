package order_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/order"
)

// fixedState is a store whose pool state the test sets.
type fixedState struct {
	*spy
	state order.PoolState
}

func (s *fixedState) PoolState(context.Context, string) (order.PoolState, error) { return s.state, nil }

func TestHealth_DistinguishesNodeFromWorker(t *testing.T) {
	s := open(t, databases.SQLite(t), setup{})
	for name, tt := range map[string]struct {
		state order.PoolState
		want  string // "" if healthy
	}{
		"fresh": {order.PoolState{Epoch: 1}, ""},
		"exactly at the limits": {order.PoolState{Epoch: 1, MarkedAgo: order.MarkTTL, CheckedAgo: order.CheckTTL},
			""},
		"stale mark": {order.PoolState{Epoch: 1, MarkedAgo: order.MarkTTL + 1}, "no worker watches monero"},
		"stale comparison": {order.PoolState{Epoch: 1, CheckedAgo: order.CheckTTL + 1},
			"monero is not watched: node or wallet is not ready"},
		"shared by another database": {order.PoolState{Epoch: 1, Conflict: true},
			"another database uses the wallet of monero"},
	} {
		orders := s.replica(&fixedState{s.spy, tt.state}, setup{config: onlyMonero})
		check(t, orders.Prepare(t.Context()))
		err := orders.Health("monero")
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A process that starts together with its worker finds outdated marks, and does
// not log a problem.
func TestPrepare_LastingProblem_IsLogged(t *testing.T) {
	var log bytes.Buffer
	s := open(t, databases.SQLite(t), setup{})
	store := &fixedState{spy: s.spy}
	orders := s.replica(store, setup{config: func(c *order.Config) {
		onlyMonero(c)
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	}})
	well, away := order.PoolState{Epoch: 1}, order.PoolState{Epoch: 1, MarkedAgo: time.Hour}
	for i, look := range []struct {
		state         order.PoolState
		limited, ends int // log lines so far
	}{
		{away, 0, 0}, {away, 0, 0}, {well, 0, 0}, {well, 0, 0}, {well, 0, 0}, {well, 0, 0}, {away, 0, 0}, {away, 0, 0},
		{away, 1, 0}, {well, 1, 1},
		{away, 1, 1}, {away, 1, 1}, {away, 2, 1}, {away, 2, 1}, {away, 2, 1}, {well, 2, 2},
	} {
		store.state = look.state
		check(t, orders.Prepare(t.Context()))
		limited, ends := strings.Count(log.String(), "for a limited time only"),
			strings.Count(log.String(), "without a time limit again")
		if limited != look.limited || ends != look.ends {
			t.Errorf("check %d: %d and %d lines, want %d and %d", i, limited, ends, look.limited, look.ends)
		}
	}
}

// Addresses of an earlier epoch may have been handed out from another database.
func TestPrepare_NewEpoch_DropsAddresses(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.stock("monero", 200)
		store := &fixedState{s.spy, order.PoolState{Epoch: 7, Moving: true}}
		orders := s.replica(store, setup{config: onlyMonero})
		took := func() bool {
			t.Helper()
			s.spy.takeCalls()
			check(t, orders.Prepare(t.Context()))
			return slices.ContainsFunc(s.spy.takeCalls(), func(call string) bool {
				return strings.HasPrefix(call, "TakeAddresses monero")
			})
		}
		if !took() || took() {
			t.Error("it took no batch, or a second one")
		}
		store.state.Epoch = 8
		if !took() {
			t.Error("addresses of another epoch are kept")
		}
	})
}
