package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// An amount that no supplier offers is refused, with a list of offers. Offered
// amounts can be ordered.
func TestCreateCard_AmountNotOffered_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	c := d.client(t, token)
	all := d.send(t, http.MethodGet, "/api/offers", token, "").want(t, http.StatusOK)
	equal(t, "everything", strings.TrimSpace(all.body), `[{"min_usd":"50","max_usd":"750","left":null}]`)

	offers := []card.Offer{{Min: 50_50, Max: 50_50, Left: 3, Life: time.Hour},
		{Min: 100_00, Max: 200_00, Left: card.Unlimited}, {Min: 300_00, Max: 300_00}}
	need(t, d.store.SaveOffers(t.Context(), card.SupplierOffers{Supplier: "sandbox", Offers: offers}))
	need(t, d.orders.RefreshOffers(t.Context()))
	listed, err := c.ListOffers(t.Context())
	need(t, err)
	equal(t, "offers", len(listed), 2)
	equal(t, "first", []string{listed[0].MinUSD.String(), listed[0].MaxUSD.String()}, []string{"50.5", "50.5"})
	equal(t, "left", *listed[0].Left, int64(3))
	equal(t, "second", []string{listed[1].MinUSD.String(), listed[1].MaxUSD.String()}, []string{"100", "200"})
	if listed[1].Left != nil {
		t.Error("the second offer has a number of cards")
	}

	open(t, d, token, "150")
	refusal := d.send(t, http.MethodPost, "/api/cards", token, orderBody("300")).refused(t,
		http.StatusUnprocessableEntity, "amount_unavailable")
	if !strings.Contains(refusal.Detail, "There are cards of 50.50, 100 to 200 US dollars.") {
		t.Error(refusal.Detail)
	}
	// The stock is empty, although the offer in memory remains.
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("50.50")).refused(t, http.StatusUnprocessableEntity,
		"amount_unavailable")
}
