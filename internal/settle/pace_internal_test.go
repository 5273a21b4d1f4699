package settle

import (
	"testing"
	"time"
)

func TestPace_BurstThenRate(t *testing.T) {
	p, now := pace{10, 20}, time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	allows := func(until time.Time, want int) {
		t.Helper()
		if got := p.allows(until, now); got != want {
			t.Errorf("allows %d, want %d", got, want)
		}
	}
	allows(time.Time{}, 20)
	until := p.after(time.Time{}, now, 5)
	if want := now.Add(500 * time.Millisecond); !until.Equal(want) {
		t.Errorf("after 5 it is %v, want %v", until, want)
	}
	allows(until, 15)
	until = p.after(until, now, 15)
	allows(until, 0)
	if spent := p.spent(now); !spent.Equal(until) {
		t.Errorf("spent at %v, want %v", spent, until)
	}
	now = now.Add(300 * time.Millisecond)
	allows(until, 3)
	now = now.Add(time.Hour)
	allows(until, 20)
}

// The skipped addresses cover all that can have been made in a lost period, and
// few more than that if they were made at the highest rate.
func TestPace_LostTime_SkipsAllThatCanBeMade(t *testing.T) {
	p, then := pace{10, 20}, time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	for name, before := range map[string]time.Time{"nothing of the burst was used": {},
		"half of it": p.after(time.Time{}, then, 10), "all of it": p.spent(then)} {
		for _, lost := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
			time.Second, time.Minute} {
			var made int64
			until := before
			for now := then; !now.After(then.Add(lost)); now = now.Add(time.Millisecond) {
				n := p.allows(until, now)
				made, until = made+int64(n), p.after(until, now, n)
			}
			if skipped := p.since(before, then, then.Add(lost)); skipped < made || skipped > made+1 {
				t.Errorf("%s, %s: %d addresses skipped, but up to %d made", name, lost, skipped, made)
			}
		}
	}
}

func TestPace_NoLimit(t *testing.T) {
	p, now := pace{0, 20}, time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	if until := p.after(now, now, 1000); !until.Equal(now) || p.allows(until, now) < 1_000_000 {
		t.Errorf("%v, allows %d", until, p.allows(until, now))
	}
	if skipped := p.since(now, now, now.Add(time.Hour)); skipped != 0 { // no estimate is possible
		t.Errorf("%d addresses are skipped", skipped)
	}
}

func TestBeacon_ProvesContinuity(t *testing.T) {
	marked := time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	server := Lease{Server: "a", Serving: true, MarkedAt: marked}
	file := Lease{Server: "a", MarkedAt: marked}
	for name, tt := range map[string]struct {
		beacon Beacon
		last   int64
		lease  Lease
		pause  time.Duration
		want   bool
	}{
		"the last mark": {Beacon{Epoch: 7, MarkedAt: marked, Server: "a"}, 7, server, time.Minute, true},
		"an earlier mark": {Beacon{Epoch: 7, MarkedAt: marked.Add(-20 * time.Second), Server: "a"}, 7,
			server, 0, true},
		"a later mark": {Beacon{Epoch: 7, MarkedAt: marked.Add(time.Millisecond), Server: "a"}, 7,
			server, 0, false},
		"a longer pause": {Beacon{Epoch: 7, MarkedAt: marked, Server: "a"}, 7, server, time.Minute + 1,
			false},
		"another epoch":             {Beacon{Epoch: 6, MarkedAt: marked, Server: "a"}, 7, server, 0, false},
		"another server":            {Beacon{Epoch: 7, MarkedAt: marked, Server: "b"}, 7, server, 0, false},
		"an older version's beacon": {Beacon{Epoch: 7, MarkedAt: marked}, 7, Lease{MarkedAt: marked}, 0, false},
		"a wallet that restarted": {Beacon{Epoch: 7, MarkedAt: marked, Server: "a", Stored: true}, 7, server, 0,
			true},
		"a file": {Beacon{Epoch: 7, MarkedAt: marked, Server: "a"}, 7, file, 0, true},
		"files of both": {Beacon{Epoch: 7, MarkedAt: marked, Server: "a", Stored: true}, 7, file, 0,
			false},
		"a wallet without a beacon": {Beacon{MarkedAt: marked, Server: "a"}, 0, server, 0, false},
	} {
		if got := tt.beacon.provesContinuity(Pool{LastEpoch: tt.last}, tt.lease, tt.pause); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
