package limit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

// A sweep for each address of a flood would take longer than the flood.
func TestFail_FullMap_SweepsOncePerSecond(t *testing.T) {
	c := newClock()
	l := limit.New(nil, limit.Config{Address: policy(t, "60/min"), Now: c.now})
	next := 0
	fail := func(n int) {
		for range n {
			l.Fail(numbered(next))
			next++
		}
	}
	want := func(n int) {
		t.Helper()
		if got := l.Addresses(); got != n {
			t.Fatalf("%d addresses are kept, want %d", got, n)
		}
	}
	const half = limit.MaxAddresses / 2
	fail(half) // full again after a second
	c.advance(500 * time.Millisecond)
	fail(half)
	c.advance(500 * time.Millisecond)
	fail(1) // the first half is dropped
	want(half + 1)
	fail(half - 1)
	c.advance(500 * time.Millisecond)
	fail(1) // the second half can't be dropped before the next sweep
	want(limit.MaxAddresses + 1)
	c.advance(500 * time.Millisecond)
	fail(1)
	want(2) // the last one and the shared bucket
}

// An address after a sweep gets its own bucket only if the sweep dropped one.
func TestFail_AfterSweep_NewAddressGetsItsOwnBucket(t *testing.T) {
	c := newClock()
	l := limit.New(nil, limit.Config{Address: policy(t, "2/min"), Now: c.now})
	for i := range limit.MaxAddresses {
		l.Fail(numbered(i))
	}
	c.advance(29 * time.Second)
	l.Fail(numbered(limit.MaxAddresses)) // the map is full
	l.Fail(numbered(limit.MaxAddresses + 1))
	if n := l.Addresses(); n != limit.MaxAddresses+1 {
		t.Errorf("%d addresses are kept", n)
	}
	if wait := blocked(l, numbered(limit.MaxAddresses+2)); wait != 30*time.Second {
		t.Errorf("a client of the shared bucket is blocked for %v", wait)
	}
	c.advance(time.Second) // all buckets but the shared one are full
	late := numbered(1_000_000)
	l.Fail(late)
	l.Fail(late)
	if wait := blocked(l, late); wait != 30*time.Second {
		t.Errorf("blocked for %v after two failures", wait)
	}
	if wait := blocked(l, netip.MustParsePrefix("192.0.2.1/32")); wait != 0 {
		t.Errorf("another is blocked for %v", wait)
	}
}

// A counter is reported once it uses more than a tenth of its rate or quota.
func TestTick_BusyCounter_IsReported(t *testing.T) {
	f := newFleet(t, 2, limit.Config{Token: policy(t, "600/min")})
	told := func() bool {
		f.store.text = nil
		f.advance(time.Second)
		f.tick(t)
		return f.store.text["1"] != ""
	}
	f.advance(time.Hour)
	f.tick(t)
	passed(f.all[1], who, who, false, 1)
	if told() {
		t.Error("one request a second is a tenth of the rate")
	}
	passed(f.all[1], who, who, false, 2)
	if !told() {
		t.Error("two requests a second are more than a tenth of the rate")
	}
	other := uuid.New() // sends almost all requests to another process
	passed(f.all[0], other, other, false, 300)
	f.tick(t)
	f.advance(2 * time.Minute)
	f.tick(t)
	passed(f.all[0], other, other, false, 300)
	f.tick(t)
	passed(f.all[1], other, other, false, 1)
	if !told() {
		t.Error("half of the quota is used, one of them here")
	}
}

// Counters that only peers use do not count toward MaxShared.
func TestTick_CountersOfPeers_DoNotCountAsShared(t *testing.T) {
	f := newFleet(t, 2, limit.Config{Token: policy(t, "600/min")})
	passed(f.all[0], who, who, false, 300)
	for range limit.MaxShared + 1 {
		f.tick(t)
	}
	other := uuid.New()
	passed(f.all[1], other, other, false, 300)
	f.tick(t)
	if f.store.text["1"] == "" {
		t.Error("no counter is left")
	}
}

// Another version may have more kinds of limits.
func TestTick_UnknownKind_IsIgnored(t *testing.T) {
	everything := policy(t, "10/s")
	f := newFleet(t, 1, limit.Config{Token: everything, Account: everything, Create: everything})
	f.store.text = map[string]string{"x": `[{"kind":"planet","id":"` + who.String() + `","bucket":1,"used":5}]`}
	f.tick(t)
	if got := passed(f.all[0], who, who, true, 20); got != 10 {
		t.Errorf("%d passed", got)
	}
}
