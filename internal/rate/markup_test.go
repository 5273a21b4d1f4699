package rate_test

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rate"
)

func fixed(t testing.TB, usd string) order.Rates {
	t.Helper()
	f, err := rate.NewFixed(map[string]string{"monero": usd}, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMarkup_Rate(t *testing.T) {
	for _, test := range []struct{ rate, percent, want, source string }{
		{"101.5", "1.5", "100", "fixed markup=1.5%"},
		{"152.52", "0.0001", "152.51984748", "fixed markup=0.0001%"},
		{"152.52", "100", "76.26", "fixed markup=100%"},
		{"0.00000003", "50", "0.00000002", "fixed markup=50%"},
		{"90000000000", "3.0000", "87378640776.69902912", "fixed markup=3%"},
	} {
		rates, err := rate.Markup(fixed(t, test.rate), percent(t, test.percent))
		if err != nil {
			t.Fatal(err)
		}
		got, err := rates.Rate("monero")
		if err != nil || got.USD.String() != test.want || got.USD.Scale != card.RateScale || got.Source != test.source ||
			!got.At.Equal(noon) {
			t.Errorf("%s with %s percent: %+v, %v", test.rate, test.percent, got, err)
		}
	}
}

func TestMarkup_Zero_ChangesNothing(t *testing.T) {
	rates := fixed(t, "152.52")
	for _, zero := range []card.Decimal{{}, {Scale: 4}} {
		if got, err := rate.Markup(rates, zero); err != nil || got != rates {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestMarkup_InvalidPercentage_ReturnsError(t *testing.T) {
	for _, p := range []card.Decimal{{Units: -1}, {Units: 101}, {Units: 1_000_001, Scale: 4}, {Units: 1, Scale: 5},
		{Units: 1, Scale: -1}, {Units: 1<<63 - 1, Scale: 4}} {
		if _, err := rate.Markup(fixed(t, "152.52"), p); err == nil {
			t.Errorf("%d / 10^%d was accepted", p.Units, p.Scale)
		}
	}
}

func TestMarkup_NoRate_ReturnsError(t *testing.T) {
	rates, err := rate.Markup(fixed(t, "0.00000001"), percent(t, "1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, currency := range []string{"bitcoin", "monero"} { // unknown; 0 after rounding
		if got, err := rates.Rate(currency); !errors.Is(err, card.ErrNoRate) || got != (card.Rate{}) {
			t.Errorf("%s: %+v, %v", currency, got, err)
		}
	}
}

// The marked-up rate is the largest rate that makes the card cost percent more.
func FuzzMarkup_LargestRateWithMarkup(f *testing.F) {
	f.Add(int64(15_252_000_000), int64(15), uint8(1))
	f.Add(int64(1<<63-1), int64(1), uint8(4))
	f.Add(int64(1), int64(1), uint8(4))
	f.Fuzz(func(t *testing.T, units, p int64, scale uint8) {
		given := card.Decimal{Units: units, Scale: card.RateScale}
		percent := card.Decimal{Units: p, Scale: int(scale)}
		rates, err := rate.Markup(constant{given}, percent)
		if err != nil || units <= 0 || p == 0 {
			return
		}
		got, err := rates.Rate("monero")
		if err != nil { // 0 after rounding
			got.USD.Units = 0
		}
		ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
		factor := new(big.Rat).Add(big.NewRat(1, 1),
			new(big.Rat).Quo(new(big.Rat).SetFrac(big.NewInt(p), ten), big.NewRat(100, 1)))
		whole := new(big.Rat).SetInt64(units)
		if r := new(big.Rat).SetInt64(got.USD.Units); r.Mul(r, factor).Cmp(whole) > 0 {
			t.Errorf("%s with %s percent is %s: too high", given, percent, got.USD)
		}
		if r := new(big.Rat).SetInt64(got.USD.Units + 1); r.Mul(r, factor).Cmp(whole) <= 0 {
			t.Errorf("%s with %s percent is %s: too low", given, percent, got.USD)
		}
	})
}

// constant is the same rate for every currency.
type constant struct{ usd card.Decimal }

func (c constant) Rate(string) (card.Rate, error) { return card.Rate{USD: c.usd, Source: "test"}, nil }
