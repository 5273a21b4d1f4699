package webhook

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

var stranger, shopAddress = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")

// flood sends all admitted requests to an address for a minute, from several
// accounts with two hosts each, and returns their number.
func flood(d *destinations, accounts int, address netip.Addr) (admitted int) {
	var keys []endpointKey
	for range accounts {
		account := uuid.New()
		for host := range 2 {
			keys = append(keys, endpointKey{account, fmt.Sprint(host)})
		}
	}
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		for _, key := range keys {
			if d.admit(key, address) == 0 {
				admitted++
				d.report(key, address, Attempt{Status: 404})
			}
		}
	}
	return admitted
}

func TestDestinations_Unproven_LimitsAllAccountsTogether(t *testing.T) {
	for accounts, perSecond := range map[int]int{1: unprovenShare, 2: 2 * unprovenShare, 6: unprovenRate} {
		synctest.Test(t, func(t *testing.T) {
			got, want := flood(newDestinations(), accounts, stranger), perSecond*(60+unprovenBurst)
			if got > want || got < want-perSecond {
				t.Errorf("%d accounts sent %d requests in a minute, want %d", accounts, got, want)
			}
		})
	}
}

func TestDestinations_FloodedAddress_DelaysNoProvenEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDestinations()
		shop := endpointKey{uuid.New(), "https://shop.example.com:443"}
		if wait := d.admit(shop, stranger); wait > 0 {
			t.Fatalf("the first attempt waits for %s", wait)
		}
		d.report(shop, stranger, Attempt{Status: 200})
		flood(d, 6, stranger)
		for range defaultRate {
			if wait := d.admit(shop, stranger); wait > 0 {
				t.Fatalf("a proven endpoint waits for %s", wait)
			}
		}
		if wait := d.admit(shop, stranger); wait <= 0 || wait > time.Second/defaultRate {
			t.Errorf("beyond its rate the wait is %s", wait)
		}
	})
}

func TestDestinations_Proven_OnlyForAcceptingAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDestinations()
		key, other := endpointKey{uuid.New(), "one"}, endpointKey{uuid.New(), "one"}
		admitted := func(key endpointKey, a netip.Addr) (n int) {
			for d.admit(key, a) == 0 {
				n++
			}
			return n
		}
		d.report(key, shopAddress, Attempt{Status: 204})
		if n := admitted(key, shopAddress); n != defaultRate {
			t.Errorf("%d requests were admitted to a proven address", n)
		}
		if n := admitted(key, stranger); n != unprovenBurst*unprovenShare {
			t.Errorf("%d requests were admitted to another address of the same name", n)
		}
		if n := admitted(other, shopAddress); n != unprovenBurst*unprovenShare {
			t.Errorf("%d requests of another account were admitted", n)
		}
		time.Sleep(time.Minute)
		reject := func(n int) {
			for range n {
				d.report(key, shopAddress, Attempt{Status: 404})
			}
		}
		reject(maxFailures - 1)
		d.report(key, shopAddress, Attempt{Status: 422}) // rejects the event only
		reject(maxFailures - 1)
		if n := admitted(key, shopAddress); n != defaultRate {
			t.Errorf("%d requests were admitted after rejections with an answer to an event in between", n)
		}
		d.report(key, netip.Addr{}, Attempt{Error: "no connection"})
		time.Sleep(time.Minute)
		if n := admitted(key, shopAddress); n != unprovenBurst*unprovenShare {
			t.Errorf("%d requests were admitted after too many rejections in a row", n)
		}
	})
}

func TestDestinations_Unused_AreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDestinations()
		for i := range 1000 {
			address := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
			key := endpointKey{uuid.New(), "one"}
			d.admit(key, address)
			d.report(key, address, Attempt{Status: 200})
		}
		time.Sleep(forgetAfter + time.Second)
		d.admit(endpointKey{}, stranger)
		if len(d.addresses) != 1 || len(d.endpoints) != 0 {
			t.Errorf("%d addresses and %d endpoints are kept", len(d.addresses), len(d.endpoints))
		}
	})
}
