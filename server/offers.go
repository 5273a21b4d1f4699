package server

import (
	"context"

	"github.com/cardmint/cardmint/internal/card"
)

// ListOffers implements listOffers.
func (a *api) ListOffers(context.Context, ListOffersRequestObject) (ListOffersResponseObject, error) {
	offers := a.orders.ListOffers()
	body := make([]Offer, len(offers))
	for i, o := range offers {
		body[i] = Offer{MinUSD: o.Min, MaxUSD: o.Max}
		if o.Left != card.Unlimited {
			body[i].Left = ptr(o.Left)
		}
	}
	return ListOffers200JSONResponse{Body: body}, nil
}
