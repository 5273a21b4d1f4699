package server

import "context"

// CancelCard implements cancelCard.
func (a *api) CancelCard(gc context.Context, r CancelCardRequestObject) (CancelCardResponseObject, error) {
	ctx, owner, err := caller(gc)
	if err != nil {
		return nil, err
	}
	if _, err := idempotencyKey(r.Params.IdempotencyKey); err != nil {
		return nil, err
	}
	c, err := a.orders.CancelCard(ctx, owner, r.UUID)
	if err != nil {
		return nil, err
	}
	a.log.InfoContext(ctx, "card canceled", "card", c.UUID, "account", owner)
	return CancelCard200JSONResponse{Body: a.auditedCard(gc, "cancelCard", c)}, nil
}
