package limit_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/limit"
)

func TestNetwork_IPv6_ReturnsNetworkOf64Bits(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":                "192.0.2.1/32",
		"::ffff:192.0.2.1":         "192.0.2.1/32",
		"2001:db8:1:2:3:4:5:6":     "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::":      "2001:db8:1:2::/64",
		"fe80::1%eth0":             "fe80::/64",
		"2001:db8:1:3:3:4:5:6%lo0": "2001:db8:1:3::/64",
	} {
		if got := limit.Network(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if got := limit.Network(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("no address: %s", got)
	}
}

func TestFail_BeyondLimit_BlocksOnlyThatAddress(t *testing.T) {
	c := newClock()
	l := limit.New(nil, limit.Config{Address: policy(t, "3/min"), Now: c.now})
	bad, good := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	for range 3 {
		if wait := blocked(l, bad); wait != 0 {
			t.Fatalf("blocked for %v", wait)
		}
		l.Fail(bad)
	}
	if wait := blocked(l, bad); wait != 20*time.Second {
		t.Errorf("blocked for %v", wait)
	}
	if wait := blocked(l, good); wait != 0 {
		t.Errorf("another is blocked for %v", wait)
	}
	for range 1000 { // concurrent requests
		l.Fail(bad)
	}
	if wait := blocked(l, bad); wait > 80*time.Second {
		t.Errorf("blocked for %v", wait)
	}
	c.advance(2 * time.Minute)
	if wait := blocked(l, bad); wait != 0 {
		t.Errorf("still blocked for %v", wait)
	}
}

func TestFail_PolicyOff_BlocksNothing(t *testing.T) {
	l := limit.New(nil, limit.Config{Now: newClock().now})
	for range 1000 {
		l.Fail(netip.Prefix{})
	}
	if wait := blocked(l, netip.Prefix{}); wait != 0 {
		t.Errorf("blocked for %v", wait)
	}
}

// numbered returns the i-th of many networks.
func numbered(i int) netip.Prefix {
	var a [16]byte
	a[0] = 0x20
	binary.BigEndian.PutUint32(a[4:], uint32(i))
	return limit.Network(netip.AddrFrom16(a))
}

// A client with more addresses than maxAddresses shares the last bucket with all
// later addresses.
func TestFail_ManyAddresses_MemoryIsBounded(t *testing.T) {
	c := newClock()
	l := limit.New(nil, limit.Config{Address: policy(t, "5/min"), Now: c.now})
	passed := 0
	for i := range 200_000 {
		if blocked(l, numbered(i)) == 0 {
			passed++
			l.Fail(numbered(i))
		}
	}
	if n := l.Addresses(); n > limit.MaxAddresses+1 {
		t.Errorf("%d addresses are kept", n)
	}
	if passed > limit.MaxAddresses+5 {
		t.Errorf("%d attempts passed", passed)
	}
	c.advance(2 * time.Minute)
	late := numbered(1_000_000)
	if wait := blocked(l, late); wait != 0 {
		t.Errorf("blocked for %v although the flood is over", wait)
	}
	l.Fail(late)
	if n := l.Addresses(); n != 1 {
		t.Errorf("%d addresses are kept after the flood", n)
	}
}

// blocked returns how long a client must wait.
func blocked(l *limit.Limiter, from netip.Prefix) time.Duration {
	wait, _ := l.Blocked(from)
	return wait
}
