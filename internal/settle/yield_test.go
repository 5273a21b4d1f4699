package settle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// failing is a chain that can't be read.
func (s *fixture) failing(err error) settle.Chain {
	return slowScan{Chain: s.chain, scan: func(context.Context) error { return err }}
}

func TestWatcher_AloneWhilePassesFail_KeepsLease(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		check(t, s.watcher.Close(t.Context()))
		w, heard := s.listen(s.store, s.failing(errFault))
		for range 120 { // an hour
			s.now = s.now.Add(30 * time.Second)
			if err := w.Tick(t.Context()); !errors.Is(err, errFault) {
				t.Fatalf("error %v", err)
			}
			check(t, w.Mark(t.Context()))
		}
		heard.want(t)
		check(t, w.Close(t.Context()))
	})
}

// Two failing processes yield the lease once a minute, not after each failure.
func TestWatcher_TwoReplicasFail_YieldOncePerMinute(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		check(t, s.watcher.Close(t.Context()))
		fault := errors.New("no route to the node")
		newWatcher := func(replica string, reports *[]settle.Report) *settle.Watcher {
			w, err := settle.New(s.store, s.rates, s.failing(fault), wakesNothing(), quiet,
				settle.Config{PoolSize: 200, CompareEvery: -1, Now: s.clock,
					LeaseTTL: 10 * time.Second, Replica: replica, Observe: func(r settle.Report) { *reports = append(*reports, r) }})
			check(t, err)
			return w
		}
		var one, two []settle.Report
		watchers := []*settle.Watcher{newWatcher("one", &one), newWatcher("two", &two)}
		const minutes = 10
		for range minutes * 30 {
			for _, w := range watchers {
				s.now = s.now.Add(time.Second)
				_ = w.Tick(t.Context())
				_ = w.Mark(t.Context())
			}
		}
		changes := 0
		for i := range one[1:] {
			if one[i].Leads != one[i+1].Leads {
				changes++
			}
		}
		if changes < 3 || changes > minutes+1 {
			t.Errorf("the first one acquired or lost the lease %d times", changes)
		}
		leads := func(r settle.Report) bool { return r.Leads }
		if !slices.ContainsFunc(two, leads) {
			t.Error("the second one never acquired the lease")
		}
	})
}

func TestWatcher_Report_NamesCause(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		check(t, s.watcher.Close(t.Context()))
		for _, tt := range []struct {
			err  error
			want string
		}{
			{errFault, ""},
			{card.Unready("monerod: connection refused").Wrap(errFault), "monerod: connection refused"},
			{card.ErrWrongChain, "node or wallet is not the one that this database belongs to"},
			{card.Unready("monerod: connection refused").Wrap(card.ErrWrongChain),
				"node or wallet is not the one that this database belongs to"},
			{card.ErrUnavailable.WithCause(errFault), "the database can't be reached"},
		} {
			var seen settle.Report
			w := s.watch(s.failing(tt.err), settle.Config{Observe: func(r settle.Report) { seen = r }})
			err := w.Tick(t.Context())
			if !errors.Is(err, tt.err) || seen.Cause != tt.want || !seen.Leads {
				t.Errorf("%v: cause %q, want %q; error %v, leads %v", tt.err, seen.Cause, tt.want, err, seen.Leads)
			}
			why, ok := errors.AsType[card.Unready](err)
			if ok != (tt.want != "") || string(why) != tt.want {
				t.Errorf("the error's reason is %q, want %q", why, tt.want)
			}
			check(t, w.Close(t.Context()))
		}
	})
}
