package supplier

import "testing"

// net/http reads the environment once per process, and never uses a proxy for
// loopback addresses, so that requests can't test this.
func TestStripe_ProxyInEnvironment_IsIgnored(t *testing.T) {
	if newStripeTransport().Proxy != nil {
		t.Error("the transport uses a proxy")
	}
}
