package rate_test

import (
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
)

func TestAcceptable_WithinThreePercent(t *testing.T) {
	waiting := []card.ParkedRate{{USD: decimal(t, "1500")}, {USD: decimal(t, "200")}}
	for usd, want := range map[string]string{
		"1500": "1500", "1545": "1500", "1455": "1500", "200": "200", "206": "200",
		"1545.00000001": "", "1454.99999999": "", "150": "", "15000": "", "0": "",
	} {
		got, ok := rate.Acceptable(waiting, decimal(t, usd))
		if ok != (want != "") || ok && got.USD.String() != want {
			t.Errorf("%s accepts %s, %t", usd, got.USD, ok)
		}
	}
	if _, ok := rate.Acceptable(waiting, card.Decimal{Units: 1500}); ok {
		t.Error("a number of another scale was accepted as a rate")
	}
	if _, ok := rate.Acceptable(nil, decimal(t, "1500")); ok {
		t.Error("accepted a rate although none is parked")
	}
}
