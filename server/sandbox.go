package server

import (
	"context"

	"github.com/cardmint/cardmint/internal/order"
)

// SimulatePayment implements simulatePayment.
func (a *api) SimulatePayment(gc context.Context, r SimulatePaymentRequestObject) (SimulatePaymentResponseObject,
	error) {
	ctx, owner, err := caller(gc)
	if err != nil {
		return nil, err
	}
	key, err := idempotencyKey(r.Params.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	payment := order.SimulatedPayment{Key: key}
	if r.Body != nil {
		payment.Amount = r.Body.Amount
		if r.Body.Confirmations != nil {
			payment.Confirmations = ptr(int(*r.Body.Confirmations))
		}
	}
	c, err := a.orders.SimulatePayment(ctx, owner, r.UUID, payment)
	if err != nil {
		return nil, err
	}
	return SimulatePayment200JSONResponse{Body: a.auditedCard(gc, "simulatePayment", c)}, nil
}
