package card_test

import (
	"errors"
	"math"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

func TestTotal_BeyondInt64_IsExact(t *testing.T) {
	most := card.TotalOf(math.MaxInt64, math.MaxInt64, math.MaxInt64)
	if got := most.String(); got != "27670116110564327421" {
		t.Errorf("%s", got)
	}
	again, err := card.ParseTotal(most.String())
	if err != nil || !again.Equal(most) || again.Equal(card.Total{}) {
		t.Errorf("%s, %v", again, err)
	}
	if got := (card.Total{}).Add(most, card.TotalOf(1), card.Total{}).String(); got != "27670116110564327422" ||
		most.String() != "27670116110564327421" {
		t.Errorf("%s, %s", got, most)
	}
	if !(card.Total{}).Equal(card.TotalOf(1, -1)) {
		t.Error("0 is not 0")
	}
	for _, text := range []string{"", "1.5", "0x1", "1 "} {
		if got, err := card.ParseTotal(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestFormatTotal_WritesWholeCoins(t *testing.T) {
	for want, total := range map[string]card.Total{
		"0": {}, "0.000000000001": card.TotalOf(1), "-0.000000000005": card.TotalOf(-5),
		"-1.5": card.TotalOf(-1_500000000000), "12": card.TotalOf(12_000000000000),
		"27670116.110564327421": card.TotalOf(math.MaxInt64, math.MaxInt64, math.MaxInt64),
	} {
		if got := monero().FormatTotal(total); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestMaxAmount_FitsTwice(t *testing.T) {
	coin := monero()
	if got := coin.MaxAmount(); got != math.MaxInt64/2 {
		t.Errorf("without a supply: %d", got)
	}
	coin.Supply = 21_000_000_00000000
	if got := coin.MaxAmount(); got != coin.Supply {
		t.Errorf("with one: %d", got)
	}
	coin.Supply = math.MaxInt64
	if got := coin.MaxAmount(); got != math.MaxInt64/2 {
		t.Errorf("with all: %d", got)
	}
}

func TestCheckTotal_SumsCountedTransfers(t *testing.T) {
	coin := monero()
	coin.Supply = 10
	of := func(amounts ...card.Amount) (ts []card.Transfer) {
		for _, a := range amounts {
			ts = append(ts, card.Transfer{Amount: a, Counted: true})
		}
		return append(ts, card.Transfer{Amount: math.MaxInt64})
	}
	for _, ts := range [][]card.Transfer{of(), of(10), of(4, 6, 0)} {
		if err := coin.CheckTotal(ts); err != nil {
			t.Errorf("%v: %v", ts, err)
		}
	}
	for _, ts := range [][]card.Transfer{of(11), of(4, 7), of(math.MaxInt64, math.MaxInt64, 4), of(-1, 5)} {
		if err := coin.CheckTotal(ts); !errors.Is(err, card.ErrImpossible) || !errors.Is(err, card.ErrChainNotReady) {
			t.Errorf("%v: %v", ts, err)
		}
	}
}

func TestPrice_AboveMaxAmount_Fails(t *testing.T) {
	coin := monero()
	coin.Supply = 1_000000000000
	if got, err := coin.Price(150_00, rateOf(t, "150")); err != nil || got != coin.Supply {
		t.Errorf("%d, %v", got, err)
	}
	if got, err := coin.Price(150_01, rateOf(t, "150")); err == nil {
		t.Errorf("%d", got)
	}
}
