package card_test

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

func TestParseUSD_AcceptsPlainDecimalsOnly(t *testing.T) {
	for text, want := range map[string]card.USD{
		"50": 50_00, "750": 750_00, "50.5": 50_50, "50.05": 50_05, "0": 0, "0050": 50_00,
		"92233720368547758.07": math.MaxInt64,
		"150.000":              150_00, "749.990": 749_99, "0.5000000000000000000000000000": 50,
		"92233720368547758.070": math.MaxInt64,
	} {
		if got, err := card.ParseUSD(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", ".", "5.", ".5", "-1", "+1", " 1", "1 ", "1e2", "1E2", "0x10", "1,5", "NaN", "Inf", "1.005", "749.999", "1.0050",
		"150.00e0", "150.00 ", "1_0", "١", "1\x00", "null",
		"92233720368547758.08", "99999999999999999999",
	} {
		if got, err := card.ParseUSD(text); err == nil {
			t.Errorf("%q: accepted as %d", text, got)
		}
	}
}

func TestUSD_WholeDollarsWithoutDecimals(t *testing.T) {
	for usd, want := range map[card.USD]string{150_00: `"150"`, 150_50: `"150.50"`, 150_05: `"150.05"`, 0: `"0"`,
		5: `"0.05"`} {
		if got, err := json.Marshal(usd); err != nil || string(got) != want {
			t.Errorf("%d: %s, %v", usd, got, err)
		}
	}
}

func TestDecimal_NoExponentNoTrailingZeros(t *testing.T) {
	for want, d := range map[string]card.Decimal{
		"1":                    {Units: 1_000000000000, Scale: 12},
		"0.000000000001":       {Units: 1, Scale: 12},
		"0":                    {Units: 0, Scale: 12},
		"0.5":                  {Units: 5, Scale: 1},
		"120":                  {Units: 120, Scale: 0},
		"9223372.036854775807": {Units: math.MaxInt64, Scale: 12},
	} {
		if got := d.String(); got != want {
			t.Errorf("%+v: %s, want %s", d, got, want)
		}
		back, err := card.ParseDecimal(want, d.Scale)
		if err != nil || back != d {
			t.Errorf("%s: parsed as %+v, %v", want, back, err)
		}
	}
	for _, text := range []string{`"1e3"`, `"-1"`, `""`, `1.`, `true`, `null`} {
		var d card.Decimal
		if err := json.Unmarshal([]byte(text), &d); err == nil && text != "null" {
			t.Errorf("%s: accepted as %s", text, d)
		}
	}
}

func rateOf(t testing.TB, usd string) card.Rate {
	t.Helper()
	d, err := card.ParseDecimal(usd, card.RateScale)
	if err != nil {
		t.Fatal(err)
	}
	return card.Rate{USD: d, At: time.Now(), Source: "test"}
}

func TestPrice_RoundsUpToOneAtomicUnit(t *testing.T) {
	for _, tt := range []struct {
		usd    card.USD
		rate   string
		amount card.Amount
	}{
		{150_00, "150", 1_000000000000},
		{50_50, "150", 336666666667},
		{100_00, "3", 33_333333333334},
		{50_00, "0.00000001", -1}, // more than fits
		{50_00, "0", -1},
	} {
		got, err := monero().Price(tt.usd, rateOf(t, tt.rate))
		if tt.amount < 0 {
			if err == nil {
				t.Errorf("%s at %s: %d", tt.usd, tt.rate, got)
			}
			continue
		}
		if err != nil || got != tt.amount {
			t.Errorf("%s at %s: %d, %v, want %d", tt.usd, tt.rate, got, err, tt.amount)
		}
	}
}

// FuzzPrice compares with exact fractions: amount times rate is never below the
// dollars, but one atomic unit less is.
func FuzzPrice(f *testing.F) {
	f.Add(int64(50_00), int64(152_52000000))
	f.Add(int64(750_00), int64(1))
	f.Add(int64(1), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, cents, units int64) {
		coin := monero()
		rate := card.Rate{USD: card.Decimal{Units: units, Scale: card.RateScale}}
		amount, err := coin.Price(card.USD(cents), rate)
		if err != nil {
			return
		}
		worth := func(a card.Amount) *big.Rat {
			coins := big.NewRat(int64(a), 1_000000000000)
			return coins.Mul(coins, big.NewRat(units, 100_000000))
		}
		want := big.NewRat(cents, 100)
		if worth(amount).Cmp(want) < 0 || worth(amount-1).Cmp(want) >= 0 {
			t.Errorf("%d cents at %d: %d", cents, units, amount)
		}
		if !coin.Covers(amount, card.USD(cents), rate) || coin.Covers(amount-1, card.USD(cents), rate) {
			t.Errorf("%d cents at %d: %d does not cover, or less does", cents, units, amount)
		}
	})
}

func TestPaymentURI_HasAddressAndAmount(t *testing.T) {
	if got := monero().PaymentURI("8Bxyz", 336666666667); got != "monero:8Bxyz?tx_amount=0.336666666667" {
		t.Error(got)
	}
}

func TestLuhnDigit_KnownNumbers(t *testing.T) {
	for _, number := range []string{"4111111111111111", "5555555555554444", "378282246310005", "79927398713"} {
		last := len(number) - 1
		if got := card.LuhnDigit(number[:last]); got != number[last:] {
			t.Errorf("%s: %s", number, got)
		}
	}
}

// monero is a coin with twelve decimals.
func monero() card.Currency {
	return card.Currency{Code: "monero", Name: "Monero", Decimals: 12, Confirmations: 10, BlockTime: 2 * time.Minute,
		AmountKey: "tx_amount"}
}

func TestCurrency_HorizonsDependOnBlockTime(t *testing.T) {
	for blockTime, want := range map[time.Duration][3]int64{
		2 * time.Minute: {120, 60, 5000}, 150 * time.Second: {96, 48, 4000}, 10 * time.Minute: {24, 12, 1000},
		time.Second: {14400, 7200, 600_000},
	} {
		c := card.Currency{BlockTime: blockTime}
		if got := [3]int64{c.ReorgHorizonBlocks(), int64(c.MaxConfirmations()), c.LockHorizonBlocks()}; got != want {
			t.Errorf("%v: %v, want %v", blockTime, got, want)
		}
	}
}

func TestWorth_RoundsDownToCents(t *testing.T) {
	for _, tt := range []struct {
		amount card.Amount
		rate   string
		want   card.USD
	}{
		{1_000000000000, "150", 150_00},
		{983456789012, "152.52", 149_99},
		{999999999999, "0.01", 0},
		{0, "150", 0},
		{-5, "150", 0},
		{math.MaxInt64, "90000000000", math.MaxInt64},
	} {
		if got := monero().Worth(tt.amount, rateOf(t, tt.rate)); got != tt.want {
			t.Errorf("%d at %s: %s, want %s", tt.amount, tt.rate, got, tt.want)
		}
	}
	if got := monero().Worth(5, card.Rate{}); got != 0 {
		t.Errorf("without a rate: %s", got)
	}
}
