package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestHTTPPoster_Header_DoesNotReplaceSignature(t *testing.T) {
	got := make(chan http.Header, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(s.Close)
	poster := webhook.NewHTTPPoster(outbound.Guard{Insecure: true})
	t.Cleanup(poster.Close)
	poster.Header = http.Header{"X-Tenant": {"a", "b"}, "Webhook-Id": {"forged"}, "Content-Type": {"text/plain"}}
	e := card.ExampleEvent(uuid.Must(uuid.NewV7()), uuid.Nil, uuid.New(), card.EventGenerated)
	if a := poster.Post(t.Context(), s.URL, []card.Secret{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, e); !a.OK() {
		t.Fatalf("%+v", a)
	}
	h := <-got
	if h.Get("Webhook-Id") != e.ID.String() || h.Get("Content-Type") != "application/json" ||
		len(h.Values("X-Tenant")) != 2 {
		t.Errorf("%v", h)
	}
}
