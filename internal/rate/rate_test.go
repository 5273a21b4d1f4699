package rate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
)

func TestFixed(t *testing.T) {
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	f, err := rate.NewFixed(map[string]string{"monero": "152.52"}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Rate("monero")
	if err != nil || got.USD.String() != "152.52" || !got.At.Equal(now) || got.Source != "fixed" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := f.Rate("bitcoin"); !errors.Is(err, card.ErrNoRate) {
		t.Errorf("unknown currency: %v", err)
	}
}

func TestFixed_InvalidRates_ReturnError(t *testing.T) {
	for _, text := range []string{"", "0", "0.0", "-1", "1e2", "abc", "1.123456789", "99999999999999"} {
		if _, err := rate.NewFixed(map[string]string{"monero": text}, time.Now); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
