package server

import (
	"net/http"
	"net/netip"
	"strings"
)

// proxies are the networks of trusted reverse proxies, whose X-Forwarded-For is
// used.
type proxies []netip.Prefix

func (p proxies) include(a netip.Addr) bool {
	for _, network := range p {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// client returns the address of the client: the last address in the chain that
// is not a trusted proxy. It is invalid if the request did not arrive over IP.
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
				return from // the rest was not written by a trusted proxy, or is malformed
			}
			if from = before; !p.include(from) {
				return from
			}
		}
	}
	return from
}

// address parses an address, with or without a port. It returns the zero
// address if s is malformed.
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
