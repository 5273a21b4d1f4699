package settle_test

import (
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/settle"
)

func TestPace_BurstThenRate(t *testing.T) {
	p, now := settle.NewPace(10, 20), time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	allows := func(until time.Time, want int) {
		t.Helper()
		if got := p.Allows(until, now); got != want {
			t.Errorf("allows %d, want %d", got, want)
		}
	}
	allows(time.Time{}, 20)
	until := p.After(time.Time{}, now, 5)
	if want := now.Add(500 * time.Millisecond); !until.Equal(want) {
		t.Errorf("after 5 it is %v, want %v", until, want)
	}
	allows(until, 15)
	until = p.After(until, now, 15)
	allows(until, 0)
	if spent := p.Spent(now); !spent.Equal(until) {
		t.Errorf("spent at %v, want %v", spent, until)
	}
	now = now.Add(300 * time.Millisecond)
	allows(until, 3)
	now = now.Add(time.Hour)
	allows(until, 20)
}

// At most as many addresses as are skipped can have been made in a lost period;
// and hardly fewer, if they were made fast.
func TestPace_LostTime_SkipsAllThatCanBeMade(t *testing.T) {
	p, then := settle.NewPace(10, 20), time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	for name, before := range map[string]time.Time{"nothing of the burst was used": {},
		"half of it": p.After(time.Time{}, then, 10), "all of it": p.Spent(then)} {
		for _, lost := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
			time.Second, time.Minute} {
			var made int64
			until := before
			for now := then; !now.After(then.Add(lost)); now = now.Add(time.Millisecond) {
				n := p.Allows(until, now)
				made, until = made+int64(n), p.After(until, now, n)
			}
			if skipped := p.Since(before, then, then.Add(lost)); skipped < made || skipped > made+1 {
				t.Errorf("%s, %s: %d addresses are skipped, and %d can have been made", name, lost, skipped, made)
			}
		}
	}
}

func TestPace_NoLimit(t *testing.T) {
	p, now := settle.NewPace(0, 20), time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	if until := p.After(now, now, 1000); !until.Equal(now) || p.Allows(until, now) < 1_000_000 {
		t.Errorf("%v, allows %d", until, p.Allows(until, now))
	}
	if skipped := p.Since(now, now, now.Add(time.Hour)); skipped != 0 { // no estimate is possible
		t.Errorf("%d addresses are skipped", skipped)
	}
}

func TestBeacon_ProvesContinuity(t *testing.T) {
	marked := time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	server := settle.Lease{Server: "a", Serving: true, MarkedAt: marked}
	file := settle.Lease{Server: "a", MarkedAt: marked}
	for name, tt := range map[string]struct {
		beacon settle.Beacon
		last   int64
		lease  settle.Lease
		pause  time.Duration
		want   bool
	}{
		"the last mark": {settle.Beacon{Epoch: 7, MarkedAt: marked, Server: "a"}, 7, server, time.Minute, true},
		"an earlier mark": {settle.Beacon{Epoch: 7, MarkedAt: marked.Add(-20 * time.Second), Server: "a"}, 7,
			server, 0, true},
		"a later mark": {settle.Beacon{Epoch: 7, MarkedAt: marked.Add(time.Millisecond), Server: "a"}, 7,
			server, 0, false},
		"a longer pause": {settle.Beacon{Epoch: 7, MarkedAt: marked, Server: "a"}, 7, server, time.Minute + 1,
			false},
		"another epoch":             {settle.Beacon{Epoch: 6, MarkedAt: marked, Server: "a"}, 7, server, 0, false},
		"another server":            {settle.Beacon{Epoch: 7, MarkedAt: marked, Server: "b"}, 7, server, 0, false},
		"an older version's beacon": {settle.Beacon{Epoch: 7, MarkedAt: marked}, 7, settle.Lease{MarkedAt: marked}, 0, false},
		"a wallet that restarted": {settle.Beacon{Epoch: 7, MarkedAt: marked, Server: "a", Stored: true}, 7, server, 0,
			true},
		"a file": {settle.Beacon{Epoch: 7, MarkedAt: marked, Server: "a"}, 7, file, 0, true},
		"files of both": {settle.Beacon{Epoch: 7, MarkedAt: marked, Server: "a", Stored: true}, 7, file, 0,
			false},
		"a wallet without a beacon": {settle.Beacon{MarkedAt: marked, Server: "a"}, 0, server, 0, false},
	} {
		if got := tt.beacon.Proves(settle.Pool{LastEpoch: tt.last}, tt.lease, tt.pause); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
