package server

import (
	"strings"
	"testing"

	"github.com/cardmint/cardmint/openapi"
)

// Every operation has a gate, or is listed without one, so that no new
// operation is forgotten.
func TestGates_CoverEveryOperation(t *testing.T) {
	g := newGates(noMetrics{})
	want := map[string]*gate{
		"createCard": g.create,
		"getCard":    g.read, "revealCard": g.read, "listWebhooks": g.read, "getWebhook": g.read, "listDeliveries": g.read,
		"cancelCard": g.manage, "createWebhook": g.manage, "updateWebhook": g.manage, "rotateWebhookSecret": g.manage,
		"redeliver": g.manage, "recoverWebhook": g.bulk, "deleteWebhook": g.bulk,
		"listCurrencies": nil, "listOffers": nil, // served from memory
		"listEvents": nil, "testWebhook": nil, "simulatePayment": nil, // have other limits
	}
	s, err := loadSpec(openapi.YAML)
	if err != nil {
		t.Fatal(err)
	}
	name := func(operation string) string { return strings.ToUpper(operation[:1]) + operation[1:] }
	for _, routes := range s.routes {
		for _, route := range routes {
			id := route.Operation.OperationID
			if id == "listCards" {
				continue
			}
			through, known := want[id]
			if !known || g.of(name(id), nil) != through {
				t.Errorf("%s: listed %t, wrong gate", id, known)
			}
			delete(want, id)
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no operation %v", want)
	}
	if g.of(name("listCards"), ListCardsRequestObject{}) != nil ||
		g.of(name("listCards"), ListCardsRequestObject{Params: ListCardsParams{Limit: new(int32(1))}}) != g.read {
		t.Error("a page must take a read slot, and a streamed list must not")
	}
}
