package rate

import (
	"math/big"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

// checkQuote fails the test if a reader returned an invalid quote.
func checkQuote(t *testing.T, q Quote) {
	t.Helper()
	switch {
	case q.Err != nil && (q.USD != card.Decimal{} || !q.At.IsZero()):
		t.Errorf("both a quote and a failure: %+v", q)
	case q.Err == nil && !plausible(q.USD):
		t.Errorf("out of bounds: %+v", q)
	}
}

func FuzzReaders_Quotes_ArePlausible(f *testing.F) {
	for _, body := range []string{KrakenAnswer, BitfinexAnswer, CoinGeckoAnswer, CoinbaseAnswer,
		`["error",10020,"symbol: invalid"]`, `{"error":["EQuery:Unknown asset pair"]}`,
		`null`, `[null]`, `[[]]`, `{"monero":null}`, `{"price":"1e5","time":"2026-11-20T12:00:00Z"}`,
		`{"monero":{"usd":152.123456789123456789,"last_updated_at":9223372036854775807}}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkQuote(t, readCoinbase(body))
		checkQuote(t, readBitfinex(body))
		checkQuote(t, readKraken(body, "XXMRZUSD"))
		quote, err := readCoinGecko(body)
		if err != nil {
			return
		}
		for _, market := range []string{"monero", "", "error"} {
			checkQuote(t, quote(market))
		}
	})
}

func FuzzNewQuote_NeverRoundsUp(f *testing.F) {
	for _, s := range []string{"152.52", "152", "152.", ".5", "0.01", "0.009999999", "100000000", "100000000.000000001",
		"1e5", "-1", "+1", "NaN", "0x10", "1_000",
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

// The documented responses of the sources, at noon.
const (
	KrakenAnswer = `{"error":[],"result":{
		"XXMRZUSD":[["152.52000000","0.10000000",1795175998.1234567,"b","m","",11]],
		"XXBTZUSD":[["90000.00000","0.00100000",1795175999.7654321,"s","l","",12]],
		"XLTCZUSD":[["83.65000","1.00000000",1795175990,"s","m","",13]],"last":"1795175999765432100"}}`
	BitfinexAnswer  = `[[1901234567,1795175997833,-0.25,152.4]]`
	CoinGeckoAnswer = `{"monero":{"usd":152.6012345678912,"last_updated_at":1795176000},"bitcoin":{"usd":90001,"last_updated_at":1795175990},"litecoin":{"usd":83.6,"last_updated_at":1795175980}}`
	CoinbaseAnswer  = `{"ask":"90001.2","bid":"90001.1","volume":"53602.03940154","trade_id":86326522,"price":"90001.11","size":"0.00698254","time":"2026-11-20T11:59:57.833Z","rfq_volume":"123.122"}`
)
