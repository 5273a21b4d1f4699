package supplier

import "testing"

// net/http reads the environment once in a process, and never has a proxy for
// loopback addresses, so that a request would not show it.
func TestStripe_ProxyInEnvironment_IsIgnored(t *testing.T) {
	if newStripeTransport().Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}
