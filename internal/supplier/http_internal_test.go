package supplier

import "testing"

// net/http reads the environment once per process, perhaps before the test that
// sets a proxy.
func TestHTTP_TransportHasNoProxy(t *testing.T) {
	s, err := NewHTTP(
		HTTPConfig{Name: "acme", URL: "https://cards.example.net", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	if err != nil {
		t.Fatal(err)
	}
	if s.transport.Proxy != nil {
		t.Error("the transport uses a proxy")
	}
}
