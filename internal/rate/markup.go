package rate

import (
	"errors"
	"fmt"
	"math/big"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// Markup returns rates that make a card cost percent more coin: each rate is
// divided by 1 + percent/100 and rounded down. If percent is 0, it returns
// rates. It returns an error if percent is not from 0 to 100, or has more than
// 4 decimals.
func Markup(rates order.Rates, percent card.Decimal) (order.Rates, error) {
	if !isPercent(percent) {
		return nil, fmt.Errorf("markup: must be 0 to 100 percent, with at most %d decimals", percentScale)
	}
	if percent.Units == 0 {
		return rates, nil
	}
	return markup{rates, percent}, nil
}

type markup struct {
	rates   order.Rates
	percent card.Decimal
}

// Rate implements order.Rates.
func (m markup) Rate(currency string) (card.Rate, error) {
	rate, err := m.rates.Rate(currency)
	if err != nil {
		return card.Rate{}, err
	}
	whole := hundred(m.percent.Scale)
	units := new(big.Int).Mul(big.NewInt(rate.USD.Units), whole)
	rate.USD.Units = units.Quo(units, whole.Add(whole, big.NewInt(m.percent.Units))).Int64()
	if rate.USD.Units <= 0 {
		return card.Rate{}, card.ErrNoRate.WithCause(errors.New("the rate is 0 after the markup"))
	}
	rate.Source += " markup=" + m.percent.String() + "%"
	return rate, nil
}
