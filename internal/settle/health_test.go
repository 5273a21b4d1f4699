package settle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

func TestWatcher_Health_ReturnsReason(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		var fault error
		w := s.watch(slowScan{Chain: s.chain, scan: func(context.Context) error { return fault }},
			settle.Config{FillBatch: 200})
		want := func(why string) {
			t.Helper()
			err := w.Health()
			var unready card.Unready
			if why == "" && err != nil || why != "" && !errors.As(err, &unready) || string(unready) != why {
				t.Errorf("health is %v, want %q", err, why)
			}
		}
		want("the last pass failed") // there was none
		for _, tt := range []struct {
			fault error
			why   string
		}{
			{errFault, "the last pass failed"},
			{fmt.Errorf("scan: %w", card.ErrChainNotReady), "node or wallet is not ready"},
			{fmt.Errorf("scan: %w", card.ErrWrongAnswer), "node or wallet gave an answer that cannot be right"},
			{fmt.Errorf("apply: %w", card.ErrImpossible), "node or wallet shows more coins than there are"},
			{fmt.Errorf("scan: %w", card.ErrWrongChain), "node or wallet is not the one that this database belongs to"},
			{fmt.Errorf("scan: %w", card.ErrWalletLost),
				"the wallet lost data and must rescan the whole chain"},
		} {
			fault = tt.fault
			if err := w.Tick(t.Context()); !errors.Is(err, fault) {
				t.Errorf("error %v", err)
			}
			want(tt.why)
			s.now = s.now.Add(2 * time.Minute)
			want(tt.why) // the failure matters more than the time since the last pass
			fault = nil
			check(t, w.Tick(t.Context()))
			want("")
		}
		s.now = s.now.Add(time.Minute)
		want("")
		s.now = s.now.Add(time.Second)
		want("no pass has ended for 1m1s")
	})
}

func TestWatcher_LeaseNotReleased_IsLogged(t *testing.T) {
	for name, released := range map[string]bool{"released": true, "not released": false} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				var db settle.Store = s.store
				want := []string{`level=WARN msg="lease yielded to a waiting worker: passes of this one fail" currency=monero`}
				if !released {
					db, want = silentStore{s.store},
						append(want, `level=WARN msg="lease not released" error="connection reset by peer"`)
				}
				want = append(want, `level=WARN msg="lease lost: this process no longer watches the chain" currency=monero fence=1`)
				w, heard := s.listen(db, slowScan{Chain: s.chain, scan: func(context.Context) error { return errFault }})
				check(t, s.store.AwaitLease(t.Context(), settle.LeaseName("monero"), "another", time.Minute))
				for _, wait := range []time.Duration{0, 30 * time.Second} { // then it yields the lease
					heard.want(t)
					s.now = s.now.Add(wait)
					if err := w.Tick(t.Context()); !errors.Is(err, errFault) {
						t.Errorf("error %v", err)
					}
				}
				heard.want(t, want...)
			})
		})
	}
}

func TestConfig_Validate_RejectsInvalidFields(t *testing.T) {
	for _, cfg := range []settle.Config{
		{}, {PoolSize: 1}, {FillBatch: 1}, {Reread: 1}, {LeaseTTL: time.Second}, {AddressRate: 1000},
	} {
		if err := cfg.Validate(); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, cfg := range []settle.Config{
		{PoolSize: -1}, {FillBatch: -1}, {Reread: -1}, {LeaseTTL: -1}, {AddressRate: -1}, {AddressRate: 1001},
	} {
		if cfg.Validate() == nil {
			t.Errorf("%+v is valid", cfg)
		}
	}
	var cfg settle.Config
	check(t, cfg.Validate())
	if cfg.PoolSize != 200 || cfg.FillBatch != 64 || cfg.CompareEvery != 5*time.Second || cfg.LeaseTTL != 3*time.Second ||
		cfg.Replica == "" || cfg.Now == nil {
		t.Errorf("the defaults are %+v", cfg)
	}
}
