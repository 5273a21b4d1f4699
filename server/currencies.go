package server

import "context"

// ListCurrencies implements listCurrencies.
func (a *api) ListCurrencies(context.Context, ListCurrenciesRequestObject) (ListCurrenciesResponseObject, error) {
	all, err := a.orders.ListCurrencies()
	if err != nil {
		return nil, err
	}
	body := make([]Currency, len(all))
	for i, c := range all {
		body[i] = Currency{Code: c.Code, Name: c.Name, Decimals: int32(c.Decimals),
			ConfirmationsRequired: int32(c.Confirmations)}
		if c.Rate != nil {
			body[i].Rate, body[i].RateAt = &c.Rate.USD, ptr(Time(c.Rate.At))
		}
	}
	return ListCurrencies200JSONResponse{Body: body}, nil
}
