package server

import (
	"net/http"
	"net/netip"
	"strings"
)

// proxies are the networks of the reverse proxies in front of the service,
// whose X-Forwarded-For is believed.
type proxies []netip.Prefix

func (p proxies) include(a netip.Addr) bool {
	for _, network := range p {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// client returns the address that a request came from: the last one that no
// proxy of ours vouches for. It is not valid if the request did not come over
// IP.
func (p proxies) client(r *http.Request) netip.Addr {
	from := address(r.RemoteAddr)
	if !p.include(from) {
		return from
	}
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			hop := rest
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, hop = rest[:comma], rest[comma+1:]
			} else {
				more = false
			}
			before := address(strings.TrimSpace(hop))
			if !before.IsValid() {
				return from // what is left of it was not written by a proxy of ours, or can't be understood
			}
			if from = before; !p.include(from) {
				return from
			}
		}
	}
	return from
}

// address parses an address, with or without a port. It returns the zero
// address if that is not possible.
func address(s string) netip.Addr {
	if withPort, err := netip.ParseAddrPort(s); err == nil {
		return withPort.Addr().Unmap().WithZone("")
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}
