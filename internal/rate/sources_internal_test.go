package rate

import (
	"math/big"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

// checkQuote fails if a reader let through what no rate must be made of.
func checkQuote(t *testing.T, q Quote) {
	t.Helper()
	switch {
	case q.Err != nil && (q.USD != card.Decimal{} || !q.At.IsZero()):
		t.Errorf("both a quote and a failure: %+v", q)
	case q.Err == nil && !plausible(q.USD):
		t.Errorf("out of bounds: %+v", q)
	}
}

func FuzzReaders_OnlyPlausibleQuotesGetThrough(f *testing.F) {
	for _, body := range []string{KrakenAnswer, BitfinexAnswer, CoinGeckoAnswer, CoinbaseAnswer, `["error",10020,"symbol: invalid"]`, `{"error":["EQuery:Unknown asset pair"]}`,
		`null`, `[null]`, `[[]]`, `{"monero":null}`, `{"price":"1e5","time":"2026-11-20T12:00:00Z"}`, `{"monero":{"usd":152.123456789123456789,"last_updated_at":9223372036854775807}}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkQuote(t, readCoinbase(body))
		for _, read := range []func() (func(string) Quote, error){
			func() (func(string) Quote, error) { return readKraken(body, noon) },
			func() (func(string) Quote, error) { return readBitfinex(body, noon) },
			func() (func(string) Quote, error) { return readCoinGecko(body) },
		} {
			quote, err := read()
			if err != nil {
				continue
			}
			for _, market := range []string{"XXMRZUSD", "tXMRUSD", "monero", "", "error"} {
				checkQuote(t, quote(market))
			}
		}
	})
}

func FuzzNewQuote_CutsAndNeverRoundsUp(f *testing.F) {
	for _, s := range []string{"152.52", "152", "152.", ".5", "0.01", "0.009999999", "100000000", "100000000.000000001", "1e5", "-1", "+1", "NaN", "0x10", "1_000",
		"152.123456789e5", "152.12345678901234567890", "", "null", "1.2.3", "٣"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := newQuote(text(s), noon)
		checkQuote(t, q)
		if q.Err != nil {
			return
		}
		exact, ok := new(big.Rat).SetString(s)
		if !ok || strings.ContainsAny(s, "eExX_+-/pP") {
			t.Fatalf("%q was read as %s", s, q.USD)
		}
		lost := exact.Sub(exact, new(big.Rat).SetFrac64(q.USD.Units, 100_000_000))
		if lost.Sign() < 0 || lost.Cmp(big.NewRat(1, 100_000_000)) >= 0 {
			t.Errorf("%q was read as %s", s, q.USD)
		}
	})
}

// What the sources document, at noon.
const (
	KrakenAnswer = `{"error":[],"result":{
		"XXMRZUSD":{"a":["152.61","1","1.000"],"b":["152.50","4","4.000"],"c":["152.52","0.1"],"v":["1.5","2.5"],"p":["152.1","152.2"],"t":[10,20],"l":["150.1","150.0"],"h":["155.0","156.0"],"o":"151.0"},
		"XXBTZUSD":{"a":["90000.1","1","1.000"],"b":["90000.0","4","4.000"],"c":["90000.00000","0.1"],"v":["1.5","2.5"],"p":["90000","90000"],"t":[10,20],"l":["89000","89000"],"h":["91000","91000"],"o":"90000"},
		"XLTCZUSD":{"a":["83.7","1","1.000"],"b":["83.6","4","4.000"],"c":["83.65000","0.1"],"v":["1.5","2.5"],"p":["83","83"],"t":[10,20],"l":["83","83"],"h":["84","84"],"o":"83"}}}`
	BitfinexAnswer = `[["tXMRUSD",152.3,10.5,152.5,11.5,-1.2,-0.0078,152.4,1234.5,155.1,150.2],
		["tBTCUSD",90000,7.66,90010,5.54,-1190,-0.0186,90005,770.4,91000,89000],
		["tLTCUSD",83.6,7.66,83.7,5.54,-1,-0.01,83.614,770.4,84,83]]`
	CoinGeckoAnswer = `{"monero":{"usd":152.6012345678912,"last_updated_at":1795176000},"bitcoin":{"usd":90001,"last_updated_at":1795175990},"litecoin":{"usd":83.6,"last_updated_at":1795175980}}`
	CoinbaseAnswer  = `{"ask":"90001.2","bid":"90001.1","volume":"53602.03940154","trade_id":86326522,"price":"90001.11","size":"0.00698254","time":"2026-11-20T11:59:57.833Z","rfq_volume":"123.122"}`
)
