package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
)

// acceptedRate returns a rate that was accepted some time ago; by an operator
// if it has a note.
func acceptedRate(currency string, usd int64, ago time.Duration, note string) card.AcceptedRate {
	return card.AcceptedRate{ID: uuid.Must(uuid.NewV7()), Currency: currency,
		USD: card.Decimal{Units: usd, Scale: card.RateScale}, Source: "median a=1",
		At: time.Now().Add(-ago), By: "host/1", Note: note}
}

// nearly compares times with the tolerance that the database's clock needs.
var nearly = cmpopts.EquateApproxTime(3 * time.Second)

func TestAcceptedRates_TheLastHourAndTheLastOfEachCurrency(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		old, decided, recent, newest := acceptedRate("monero", 1, 3*time.Hour, ""),
			acceptedRate("monero", 2, 2*time.Hour, "I looked"),
			acceptedRate("monero", 3, 50*time.Minute, ""), acceptedRate("monero", 4, time.Minute, "")
		alone, other := acceptedRate("litecoin", 5, 240*time.Hour, ""), acceptedRate("bitcoin", 6, 0, "")
		want := func(want []card.AcceptedRate, currencies ...string) {
			t.Helper()
			got, err := s.AcceptedRates(ctx, currencies, time.Hour)
			check(t, err)
			if diff := cmp.Diff(want, got, nearly, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		}
		want(nil, "monero")
		check(t, s.InsertAcceptedRates(ctx, []card.AcceptedRate{newest, old, alone}, time.Hour))
		check(t, s.InsertAcceptedRates(ctx, []card.AcceptedRate{recent, decided, other}, time.Hour))
		check(t, s.InsertAcceptedRates(ctx, []card.AcceptedRate{recent, decided}, time.Hour)) // idempotent
		check(t, s.InsertAcceptedRates(ctx, nil, time.Hour))
		want([]card.AcceptedRate{alone, recent, newest}, "monero", "litecoin")
		want([]card.AcceptedRate{other}, "bitcoin")

		var kept []int64
		for usd := range int64(7) {
			var n int
			check(t, s.Scalar(ctx, &n, fmt.Sprint("SELECT COUNT(*) FROM accepted_rates WHERE usd = ", usd)))
			if n == 1 {
				kept = append(kept, usd)
			}
		}
		if diff := cmp.Diff([]int64{2, 3, 4, 5, 6}, kept); diff != "" {
			t.Errorf("kept are the last hour, the last of each currency, and decisions: %s", diff)
		}
	})
}

// The database's clock decides which rate is the newest. A time in the future
// counts as now.
func TestAcceptedRates_ATimeInTheFutureIsNotNewerThanNow(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ahead := acceptedRate("monero", 1, -24*time.Hour, "")
		check(t, s.InsertAcceptedRates(t.Context(), []card.AcceptedRate{ahead}, time.Hour))
		got, err := s.AcceptedRates(t.Context(), []string{"monero"}, time.Hour)
		check(t, err)
		if len(got) != 1 || time.Until(got[0].At) > 3*time.Second {
			t.Errorf("%+v", got)
		}
	})
}

func TestParkedRates_EachProcessReplacesItsOwn(t *testing.T) {
	conform(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		parked := func(process string, usd int64, left time.Duration) card.ParkedRate {
			return card.ParkedRate{Currency: "monero", USD: card.Decimal{Units: usd, Scale: card.RateScale},
				Source: "median a=1", Why: "too far",
				Since: time.Now().Add(-time.Hour), Until: time.Now().Add(left), By: process}
		}
		want := func(want ...card.ParkedRate) {
			t.Helper()
			got, err := s.ParkedRates(ctx)
			check(t, err)
			if diff := cmp.Diff(want, got, nearly, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		}
		want()
		one, two := parked("a/1", 1, 5*time.Minute), parked("b/1", 2, 4*time.Minute)
		bitcoin := one
		bitcoin.Currency, bitcoin.Until = "bitcoin", time.Now().Add(3*time.Minute)
		check(t, s.SaveParkedRates(ctx, "b/1", []card.ParkedRate{two}))
		check(t, s.SaveParkedRates(ctx, "a/1", []card.ParkedRate{one, bitcoin}))
		want(one, two, bitcoin)
		one.USD.Units = 3
		check(t, s.SaveParkedRates(ctx, "a/1", []card.ParkedRate{one}))
		want(one, two)
		check(t, s.SaveParkedRates(ctx, "a/1", nil))
		want(two)
		check(t, s.SaveParkedRates(ctx, "c/1", []card.ParkedRate{parked("c/1", 4, -time.Minute)})) // of a crashed process
		time.Sleep(2 * time.Millisecond)
		want(two)
	})
}
