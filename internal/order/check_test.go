package order_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

const (
	outOfBounds = "must be between 50 and 750"
	notANumber  = "must be a plain decimal number such as 150 or 150.5, without sign or exponent"
	unknownCoin = "is not a currency of this service; choose one of: monero, pebble"
)

func TestCheck_ManyErrors_ReturnsAll(t *testing.T) {
	t.Parallel()
	s, err := order.New(nil, nil, nil, nil, nil, order.Config{Currencies: []card.Currency{monero, pebble}})
	check(t, err)
	for _, tt := range []struct{ usd, currency, usdWrong, currencyWrong string }{
		{"50", "monero", "", ""},
		{"50.00", "pebble", "", ""},
		{"750", "monero", "", ""},
		{"750.00", "monero", "", ""},
		{"150.5", "monero", "", ""},
		{"150.05", "monero", "", ""},
		{"749.990", "monero", "", ""},
		{"749.999", "monero", "must have at most 2 decimals", ""},
		{"49.99", "monero", outOfBounds, ""},
		{"750.01", "monero", outOfBounds, ""},
		{"0", "monero", outOfBounds, ""},
		{"150.001", "monero", "must have at most 2 decimals", ""},
		{"99999999999999999999", "monero", "is too large", ""},
		{"-150", "monero", notANumber, ""},
		{"1.5e2", "monero", notANumber, ""},
		{" 150", "monero", notANumber, ""},
		{"", "monero", notANumber, ""},
		{"150", "dogecoin", "", unknownCoin},
		{"150", "Monero", "", unknownCoin},
		{"150", "", "", unknownCoin},
		{"49", "dogecoin", outOfBounds, unknownCoin},
		{"many", "", notANumber, unknownCoin},
	} {
		var want []card.FieldError
		if tt.usdWrong != "" {
			want = append(want, card.FieldError{Pointer: "/usd_amount", Detail: tt.usdWrong})
		}
		if tt.currencyWrong != "" {
			want = append(want, card.FieldError{Pointer: "/currency", Detail: tt.currencyWrong})
		}
		o, wrong := s.Check(order.Request{USDAmount: tt.usd, Currency: tt.currency})
		if diff := cmp.Diff(want, wrong); diff != "" {
			t.Errorf("%q %q: %s", tt.usd, tt.currency, diff)
		}
		if found := o != (order.Order{}); found != (want == nil) {
			t.Errorf("%q %q: returned an order: %v", tt.usd, tt.currency, found)
		}
	}
}

func TestNew_InvalidConfig_ReturnsError(t *testing.T) {
	t.Parallel()
	most := monero.MaxConfirmations()
	with := func(confirmations int, change func(*order.Config)) order.Config {
		c := order.Config{Currencies: []card.Currency{pebble, monero}}
		c.Currencies[1].Confirmations = confirmations
		change(&c)
		return c
	}
	as := func(*order.Config) {}
	for name, tt := range map[string]struct {
		config order.Config
		want   string
	}{
		"defaults":               {with(10, as), ""},
		"no currency":            {order.Config{}, "no currency is enabled"},
		"no confirmation":        {with(0, as), "monero: confirmations must be between 1 and 60"},
		"one confirmation":       {with(1, as), ""},
		"most confirmations":     {with(most, as), ""},
		"too many confirmations": {with(most+1, as), "monero: confirmations must be between 1 and 60"},
		"quotes of a minute":     {with(1, func(c *order.Config) { c.QuoteTTL = time.Minute }), ""},
		"shorter quotes": {with(1, func(c *order.Config) { c.QuoteTTL = time.Minute - 1 }),
			"quotes must last at least a minute"},
		"a negative limit": {with(1, func(c *order.Config) { c.MaxOpenUSD = -1 }),
			"the limit of open cards must not be negative"},
		"nothing may be open yet": {with(1, func(c *order.Config) { c.MaxOpenUSD = 1 }), ""},
	} {
		s, err := order.New(nil, nil, nil, nil, nil, tt.config)
		if got := text(err); got != tt.want || (s == nil) != (err != nil) {
			t.Errorf("%s: %q, want %q; returned a service: %v", name, got, tt.want, s != nil)
		}
	}
}

func TestConfig_Validate_SetsDefaults(t *testing.T) {
	t.Parallel()
	now := func() time.Time { return time.Time{} }
	for _, tt := range []struct{ set, want order.Config }{
		{order.Config{}, order.Config{QuoteTTL: time.Hour, MaxBlind: 15 * time.Minute}},
		{order.Config{QuoteTTL: 2 * time.Hour, MaxBlind: time.Second, MaxOpenUSD: 1, FreezeReversed: true, Now: now},
			order.Config{QuoteTTL: 2 * time.Hour, MaxBlind: time.Second, MaxOpenUSD: 1, FreezeReversed: true}},
	} {
		got := tt.set
		got.Currencies = []card.Currency{monero}
		check(t, got.Validate())
		if now := got.Now(); now.IsZero() != (tt.set.Now != nil) {
			t.Errorf("the clock shows %s", now)
		}
		got.Log.Debug("discarded")
		if diff := cmp.Diff(got.Currencies, got.Known); diff != "" {
			t.Errorf("known: %s", diff)
		}
		got.Currencies, got.Known, got.Now, got.Log = nil, nil, nil, nil
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
