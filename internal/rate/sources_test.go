package rate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/rate"
)

var coins = []string{"monero", "bitcoin", "litecoin"}

func TestSources_DocumentedResponses(t *testing.T) {
	for name, test := range map[string]struct {
		body, want string
		asked      []string
	}{
		"kraken": {rate.KrakenAnswer, "monero=152.52@11:59:58, bitcoin=90000@11:59:59, litecoin=83.65@11:59:50",
			[]string{"/0/public/Trades?count=1&pair=XXMRZUSD", "/0/public/Trades?count=1&pair=XXBTZUSD",
				"/0/public/Trades?count=1&pair=XLTCZUSD"}},
		"bitfinex": {rate.BitfinexAnswer, "monero=152.4@11:59:57, bitcoin=152.4@11:59:57, litecoin=152.4@11:59:57",
			[]string{"/v2/trades/tXMRUSD/hist?limit=1&sort=-1", "/v2/trades/tBTCUSD/hist?limit=1&sort=-1",
				"/v2/trades/tLTCUSD/hist?limit=1&sort=-1"}},
		"coingecko": {rate.CoinGeckoAnswer, "monero=152.60123456@12:00:00, bitcoin=90001@11:59:50, litecoin=83.6@11:59:40",
			[]string{"/api/v3/simple/price?vs_currencies=usd&include_last_updated_at=true&precision=full&ids=monero,bitcoin,litecoin"}},
		"coinbase": {rate.CoinbaseAnswer, "monero absent, bitcoin=90001.11@11:59:57, litecoin=90001.11@11:59:57",
			[]string{"/products/BTC-USD/ticker", "/products/LTC-USD/ticker"}},
	} {
		s := answering(t, test.body)
		source := open(t, name, s.URL+"/")
		quotes, err := source.Fetch(t.Context(), append([]string{"unheard-of"}, coins...))
		if got := show(coins, quotes, err); got != test.want || source.Name() != name {
			t.Errorf("%s: %s", source.Name(), got)
		}
		if diff := cmp.Diff(test.asked, s.asked); diff != "" {
			t.Errorf("requests to %s (-want +got)\n%s", name, diff)
		}
	}
}

// Without markets, some sources would return every market that they have.
func TestSources_NoMarket_NoRequest(t *testing.T) {
	for name := range rate.Known() {
		s := answering(t, `{}`)
		quotes, err := open(t, name, s.URL).Fetch(t.Context(), []string{"unheard-of"})
		if err != nil || len(quotes) > 0 || len(s.asked) > 0 {
			t.Errorf("%s: %v, %v, requests %v", name, quotes, err, s.asked)
		}
	}
}

func TestSources_BadValue_AffectsItsQuoteOnly(t *testing.T) {
	const implausible = "quote is not a plain number of 0.01 to 100000000 US dollars"
	good := map[string]string{
		"kraken":    `{"error":[],"result":{"XXMRZUSD":[["152.52","0.1",1795176000,"b","m","",1]],"XXBTZUSD":%s}}`,
		"coingecko": `{"bitcoin":%s,"monero":{"usd":152.52,"last_updated_at":1795176000}}`,
	}
	forms := map[string]string{ // formats of a price
		"kraken":    `[[%s,"0.1",1795176000.123,"b","m","",1]]`,
		"coingecko": `{"usd":%s,"last_updated_at":1795176000}`,
	}
	check := func(name, part, want string) {
		t.Helper()
		s := answering(t, fmt.Sprintf(good[name], part))
		quotes, err := open(t, name, s.URL).Fetch(t.Context(), []string{"monero", "bitcoin"})
		if got := show([]string{"monero", "bitcoin"}, quotes, err); got != "monero=152.52@12:00:00, bitcoin"+want {
			t.Errorf("%s with %s: %s", name, part, got)
		}
	}
	for name, form := range forms {
		for price, want := range map[string]string{
			`"90000.5"`: "=90000.5@12:00:00", `90000.5`: "=90000.5@12:00:00", // both numbers and strings are accepted
			`0.01`: "=0.01@12:00:00", `100000000`: "=100000000@12:00:00", `90000.999999999`: "=90000.99999999@12:00:00",
			`0`: ": " + implausible, `"0.00"`: ": " + implausible, `-90000`: ": " + implausible, `"NaN"`: ": " + implausible,
			`"Infinity"`: ": " + implausible,
			`1e5`:        ": " + implausible, `"1e5"`: ": " + implausible, `1E+5`: ": " + implausible,
			`"90000.123456789e2"`: ": " + implausible,
			`0.009999999`:         ": " + implausible, `100000000.1`: ": " + implausible,
			`123456789012345678901234567890`: ": " + implausible,
			`null`:                           ": " + implausible, `""`: ": " + implausible, `" 90000"`: ": " + implausible,
			`"90,000"`: ": " + implausible, `"90000."`: ": " + implausible, `".5"`: ": " + implausible,
			`"0x5F"`: ": " + implausible,
			`true`:   ": " + implausible, `[90000]`: ": " + implausible, `{"usd":90000}`: ": " + implausible,
			`"\u0039"`: ": " + implausible,
		} {
			check(name, fmt.Sprintf(form, price), want)
		}
	}
	const undocumented = ": answer is not what the source documents"
	const traded = `["90000","0.1",1795176000,"b","m","",1]`
	check("kraken", `null`, ": answer has no quote for it")
	check("kraken", `[]`, ": answer has no quote for it")
	check("kraken", `{}`, undocumented)
	check("kraken", `"90000"`, undocumented)
	check("kraken", `["90000","0.1",1795176000]`, undocumented)
	check("kraken", `[["90000","0.1"]]`, undocumented)
	check("kraken", `[["90000","0.1",null]]`, ": quote has no time")
	check("kraken", `[["90000","0.1","now"]]`, ": quote has no time")
	check("kraken", `[["90000","0.1",1e30]]`, ": quote has no time")
	check("kraken", `[["80000","0.1",1795175000,"b","m","",1],`+traded+`]`, "=90000@12:00:00") // the last trade is the newest
	check("coingecko", `null`, ": quote has no time")
	check("coingecko", `{}`, ": quote has no time")
	check("coingecko", `{"usd":90000}`, ": quote has no time")
	check("coingecko", `{"usd":90000,"last_updated_at":null}`, ": quote has no time")
	check("coingecko", `{"usd":90000,"last_updated_at":1795176000.5}`, ": quote has no time")
	check("coingecko", `{"last_updated_at":1795176000}`, ": "+implausible)
	check("coingecko", `[]`, undocumented)
}

func TestSources_MissingMarket_Named(t *testing.T) {
	for name, body := range map[string]string{
		"kraken": `{"error":[],"result":{"XXBTZUSD":[["90000","1",1795176000]]}}`, "bitfinex": `[]`, "coingecko": `{}`,
	} {
		quotes, err := open(t, name, answering(t, body).URL).Fetch(t.Context(), []string{"monero"})
		if got := show([]string{"monero"}, quotes, err); got != "monero: answer has no quote for it" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestCoinbase_OneMarketFails_OthersQuoted(t *testing.T) {
	s := playing(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "BTC") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"message":"NotFound"}`)
			return
		}
		_, _ = io.WriteString(w, rate.CoinbaseAnswer)
	})
	quotes, err := open(t, "coinbase", s.URL).Fetch(t.Context(), coins)
	if got := show(coins, quotes, err); got != "monero absent, bitcoin: HTTP status 404, litecoin=90001.11@11:59:57" {
		t.Error(got)
	}
	for body, want := range map[string]string{
		`{"price":"83.6"}`:                   "quote has no time",
		`{"price":"83.6","time":null}`:       "quote has no time",
		`{"price":"83.6","time":"today"}`:    "quote has no time",
		`{"price":"83.6","time":1795176000}`: "quote has no time",
		`null`:                               "quote has no time",
		`[]`:                                 "answer is not what the source documents",
		`{"price":null,"time":"2026-11-20T12:00:00Z"}`: "quote is not a plain number of 0.01 to 100000000 US dollars",
	} {
		quotes, err := open(t, "coinbase", answering(t, body).URL).Fetch(t.Context(), []string{"litecoin"})
		if got := show([]string{"litecoin"}, quotes, err); got != "litecoin: "+want {
			t.Errorf("%s: %s", body, got)
		}
	}
}

func TestKraken_ErrorWithResult_Dropped(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":["EQuery:Unknown asset pair"]}`:                                                    "answers with the error EQuery:Unknown asset pair",
		`{"error":["EAPI:Rate limit exceeded"],"result":{"XXMRZUSD":[["152.52","0.1",1795176000]]}}`: "answers with the error EAPI:Rate limit exceeded",
		`{"error":["<script>\n` + strings.Repeat("x", 1000) + `"],"result":{}}`:                      "answers with an error",
		`{"error":["` + strings.Repeat("x", 60) +
			`"]}`: "answers with the error " + strings.Repeat("x", 60),
		`{"error":["` + strings.Repeat("x", 61) + `"]}`: "answers with an error",
		`{"error":[""]}`:           "answers with an error",
		`{"error":"EGeneral"}`:     "answer is not what the source documents",
		`{"error":{},"result":{}}`: "answer is not what the source documents",
	} {
		quotes, err := open(t, "kraken", answering(t, body).URL).Fetch(t.Context(), []string{"monero"})
		if got := show([]string{"monero"}, quotes, err); got != "monero: "+want {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// fails checks that no source returns a quote, and that the reason contains no
// part of the body.
func fails(t *testing.T, address string, want string) {
	t.Helper()
	for name := range rate.Known() {
		quotes, err := open(t, name, address).Fetch(t.Context(), []string{"bitcoin"})
		got := strings.TrimPrefix(show([]string{"bitcoin"}, quotes, err), "bitcoin: ")
		if !strings.Contains(got, want) || strings.Contains(got, "=") || strings.Contains(got, "canary") ||
			strings.Contains(got, strings.TrimPrefix(address, "http://")) {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
}

func TestSources_InvalidResponses_Dropped(t *testing.T) {
	for _, status := range []int{201, 204, 400, 401, 403, 404, 418, 429, 451, 500, 502, 503, 520} {
		s := playing(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(status)
			if status != http.StatusNoContent {
				_, _ = io.WriteString(w, `{"message":"canary"}`)
			}
		})
		fails(t, s.URL, fmt.Sprint("HTTP status ", status))
	}
	const undocumented = "answer is not what the source documents"
	for body, want := range map[string]string{
		"":                                undocumented,
		"<!doctype html><p>canary</p>":    undocumented,
		`"canary"`:                        undocumented,
		`12`:                              undocumented,
		rate.KrakenAnswer[:200]:           undocumented,
		rate.BitfinexAnswer[:20]:          undocumented,
		rate.CoinGeckoAnswer[:20]:         undocumented,
		rate.CoinbaseAnswer[:100]:         undocumented,
		rate.KrakenAnswer + "canary":      undocumented,
		"\xff\xfe" + rate.CoinGeckoAnswer: undocumented,
		strings.Repeat("[", 100_000):      undocumented,
	} {
		fails(t, answering(t, body).URL, want)
	}
}

func TestBitfinex_NoTrade_Dropped(t *testing.T) {
	const undocumented = "answer is not what the source documents"
	for body, want := range map[string]string{
		`["error",10020,"symbol: canary"]`: undocumented, // with status 200
		`{}`:                               undocumented,
		`[1,1795176000000,1,90000]`:        undocumented,
		`[[1,1795176000000,1]]`:            undocumented,
		`[]`:                               "answer has no quote for it",
		`null`:                             "answer has no quote for it",
		`[[1,null,1,90000]]`:               "quote has no time",
		`[[1,"now",1,90000]]`:              "quote has no time",
		`[[1,1795176000000.5,1,90000]]`:    "quote has no time",
		`[[1,1795176000000,1,-90000]]`:     "quote is not a plain number of 0.01 to 100000000 US dollars",
		`[[1,1795176000000,1,1e5]]`:        "quote is not a plain number of 0.01 to 100000000 US dollars",
	} {
		quotes, err := open(t, "bitfinex", answering(t, body).URL).Fetch(t.Context(), []string{"bitcoin"})
		if got := show([]string{"bitcoin"}, quotes, err); got != "bitcoin: "+want {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// bitfinex returns a site that responds like Bitfinex, with a price for each
// market.
func bitfinex(t testing.TB, prices map[string]string) *site {
	return playing(t, func(w http.ResponseWriter, r *http.Request) {
		symbol, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/trades/"), "/")
		_, _ = fmt.Fprintf(w, `[[1,%d,0.1,%s]]`, noon.UnixMilli(), prices[symbol])
	})
}

func TestLive_RedirectTLSErrorEndlessBody_Dropped(t *testing.T) {
	var followed atomic.Int32
	target := playing(t, func(w http.ResponseWriter, _ *http.Request) {
		followed.Add(1)
		_, _ = io.WriteString(w, rate.KrakenAnswer)
	})
	redirect := playing(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL+r.URL.RequestURI(), http.StatusPermanentRedirect)
	})
	selfSigned := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, rate.BitfinexAnswer) }))
	selfSigned.Config.ErrorLog = log.New(io.Discard, "", 0)
	selfSigned.StartTLS()
	t.Cleanup(selfSigned.Close)
	var sent atomic.Int64
	endless := playing(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte(" "), 64<<10)
		for sent.Load() < 100<<20 {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	live := liveFrom(t, map[string]string{"kraken": redirect.URL, "bitfinex": selfSigned.URL, "coingecko": endless.URL},
		[]string{"monero"}, 10*time.Second)
	_ = live.Tick(t.Context())
	wantNoRate(t, live,
		"0 of 3 sources can be used, and 2 are needed: bitfinex: tls: failed to verify certificate: x509: ")
	wantNoRate(t, live, "coingecko: answer is longer than 1048576 bytes; kraken: HTTP status 308")
	if followed.Load() != 0 {
		t.Error("the redirect was followed")
	}
	if sent.Load() > 32<<20 {
		t.Errorf("%d bytes were read", sent.Load())
	}
}

func TestSources_BodyOfAMegabyte_Read(t *testing.T) {
	const most = 1 << 20
	fill := strings.Repeat(" ", most-len(rate.KrakenAnswer))
	if quotes, err := open(t, "kraken", answering(t, rate.KrakenAnswer+fill).URL).Fetch(t.Context(), coins); err != nil ||
		quotes["monero"].Err != nil {
		t.Error(show(coins, quotes, err))
	}
	quotes, err := open(t, "kraken", answering(t, rate.KrakenAnswer+fill+" ").URL).Fetch(t.Context(), []string{"monero"})
	if got := show([]string{"monero"}, quotes, err); got != "monero: answer is longer than 1048576 bytes" {
		t.Error(got)
	}
}

// liveFrom returns rates from the sources that have addresses, at noon.
func liveFrom(t testing.TB, urls map[string]string, coins []string, timeout time.Duration) *rate.Live {
	t.Helper()
	sources, err := rate.Sources(slices.Collect(maps.Keys(urls)), urls, chain.Markets())
	if err != nil {
		t.Fatal(err)
	}
	live, err := rate.New(sources, slog.Default(),
		rate.Config{Coins: coins, Timeout: timeout, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	return live
}

func TestLive_FromEverySource(t *testing.T) {
	live := liveFrom(t,
		map[string]string{"kraken": answering(t, rate.KrakenAnswer).URL,
			"bitfinex":  bitfinex(t, map[string]string{"tXMRUSD": "152.4", "tBTCUSD": "90005"}).URL,
			"coingecko": answering(t, rate.CoinGeckoAnswer).URL, "coinbase": answering(t, rate.CoinbaseAnswer).URL},
		[]string{"monero", "bitcoin"}, 0)
	if err := live.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	for coin, want := range map[string]string{
		"monero":  "152.52 median bitfinex=152.4 coingecko=152.60123456 kraken=152.52",
		"bitcoin": "90001.055 median bitfinex=90005 coinbase=90001.11 coingecko=90001 kraken=90000",
	} {
		if got, err := live.Rate(coin); err != nil || got.USD.String()+" "+got.Source != want {
			t.Errorf("%s %s, %v", got.USD, got.Source, err)
		}
	}
}

func TestSources_Hanging_TimeOut(t *testing.T) {
	silent := playing(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	stuck := playing(t, func(w http.ResponseWriter, r *http.Request) { // in the middle of the body
		_, _ = io.WriteString(w, rate.CoinGeckoAnswer[:30])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never responds
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	live := liveFrom(t,
		map[string]string{"kraken": silent.URL, "coingecko": stuck.URL, "bitfinex": "http://" + listener.Addr().String(),
			"coinbase": answering(t, rate.CoinbaseAnswer).URL}, []string{"bitcoin"}, time.Second)
	began := time.Now()
	err = live.Tick(t.Context())
	const late = "no answer within 1s: context deadline exceeded"
	if want := "rate of bitcoin: 1 of 4 sources can be used, and 2 are needed: bitfinex: " + late + "; coingecko: " +
		late + "; kraken: " + late; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestSources_ConnectionFails_Dropped(t *testing.T) {
	closed := answering(t, "")
	closed.Close()
	fails(t, closed.URL, "connection refused")
	torn := playing(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"canary":`)
	})
	fails(t, torn.URL, "unexpected EOF")
	fails(t, playing(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("canary", 100_000))
	}).URL, "exceeded")
}

// A halted market still returns fresh responses.
func TestLive_HaltedMarket_IsDropped(t *testing.T) {
	hourAgo := noon.Add(-time.Hour)
	live := liveFrom(t, map[string]string{
		"kraken": answering(t,
			fmt.Sprintf(`{"error":[],"result":{"XXMRZUSD":[["99.5","0.1",%d.25,"b","m","",1]],"last":"1"}}`,
				hourAgo.Unix())).URL,
		"bitfinex":  answering(t, fmt.Sprintf(`[[1,%d,-0.1,99.5]]`, hourAgo.UnixMilli())).URL,
		"coingecko": answering(t, rate.CoinGeckoAnswer).URL}, []string{"monero"}, 0)
	_ = live.Tick(t.Context())
	wantNoRate(t, live,
		"1 of 3 sources can be used, and 2 are needed: bitfinex: quote is 1h0m0s old, more than 5m0s; kraken: quote is 1h0m0s old")
}

func TestSources_Request_HasNoOtherHeaders(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	for name := range rate.Known() {
		var header http.Header
		s := playing(t, func(w http.ResponseWriter, r *http.Request) {
			header = r.Header.Clone()
			http.SetCookie(w, &http.Cookie{Name: "id", Value: "1"})
			_, _ = io.WriteString(w, `{}`)
		})
		source := open(t, name, s.URL)
		for range 2 {
			_, _ = source.Fetch(t.Context(), []string{"bitcoin"})
		}
		want := http.Header{"User-Agent": {"cardmint"}, "Accept": {"application/json"}}
		if diff := cmp.Diff(want, header); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestSources_ContextCanceled_Return(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := playing(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	quotes, err := open(t, "kraken", s.URL).Fetch(ctx, []string{"monero"})
	if got := show([]string{"monero"}, quotes, err); got != "monero: context canceled" {
		t.Error(err)
	}
}

func TestSources_ByName(t *testing.T) {
	names := func(sources []rate.Source) (names []string) {
		for _, s := range sources {
			names = append(names, s.Name())
		}
		return names
	}
	all, err := rate.Sources(nil, nil, chain.Markets())
	if diff := cmp.Diff([]string{"bitfinex", "coinbase", "coingecko", "kraken"}, names(all)); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	// Coinbase has no market for Monero.
	some, err := rate.Sources(nil, nil, map[string]map[string]string{"monero": chain.Markets()["monero"]})
	if diff := cmp.Diff([]string{"bitfinex", "coingecko", "kraken"}, names(some)); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for _, s := range all {
		if s.Serves("monero") == (s.Name() == "coinbase") || !s.Serves("bitcoin") || s.Serves("unheard-of") {
			t.Errorf("%s serves coins without a market", s.Name())
		}
	}
	const nowhere = "rate source coinbase has no market for monero"
	if _, err := rate.Sources([]string{"coinbase", "kraken"}, nil,
		map[string]map[string]string{"monero": chain.Markets()["monero"]}); err == nil || err.Error() != nowhere {
		t.Errorf("%v; want %s", err, nowhere)
	}
	two, err := rate.Sources([]string{"kraken", "bitfinex"}, map[string]string{"kraken": "http://localhost:1/mirror"},
		chain.Markets())
	if diff := cmp.Diff([]string{"bitfinex", "kraken"}, names(two)); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for name, address := range rate.Known() {
		if !strings.HasPrefix(address, "https://") {
			t.Errorf("URL of %s is %s", name, address)
		}
	}
	for want, test := range map[string]struct {
		names []string
		urls  map[string]string
	}{
		`rate source "mtgox" is not known, only bitfinex, coinbase, coingecko, kraken`: {[]string{"kraken", "mtgox"}, nil},
		`rate source kraken is listed twice`:                                           {[]string{"kraken", "kraken"}, nil},
		`rate source "bitfinex" has an address but is not used`: {[]string{"kraken"},
			map[string]string{"bitfinex": "https://example.com"}},
	} {
		if _, err := rate.Sources(test.names, test.urls, chain.Markets()); err == nil || err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

func TestSources_PlainHTTP_ReturnsError(t *testing.T) {
	for _, address := range []string{"https://example.com", "https://example.com:8443/mirror/", "http://127.0.0.1:8080",
		"http://[::1]:8080", "http://localhost"} {
		if _, err := rate.Sources([]string{"kraken"}, map[string]string{"kraken": address}, chain.Markets()); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"", "example.com", "http://example.com", "http://10.0.0.1",
		"http://127.0.0.1.example.com", "http://localhost.example.com", "ftp://example.com",
		"file:///etc/passwd", "https://", "https://user:canary@example.com", "https://example.com?key=canary",
		"https://example.com#canary", "http://[::1", "://canary"} {
		if _, err := rate.Sources([]string{"kraken"}, map[string]string{"kraken": address}, chain.Markets()); err == nil ||
			strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
