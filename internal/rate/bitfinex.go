package rate

import (
	"context"
	"encoding/json"
	"time"
)

// bitfinex quotes the price of the last trade. Each market is a row of numbers without a time. Unknown markets are left out.
// Source: https://docs.bitfinex.com/reference/rest-public-tickers.
type bitfinex struct{ site }

func newBitfinex(s site) Source { return bitfinex{s} }

// Fetch implements Source.
func (b bitfinex) Fetch(ctx context.Context, coins []string) (map[string]Quote, error) {
	symbols := b.list(coins)
	if symbols == "" { // an empty list would mean all
		return nil, nil
	}
	answer, err := b.get(ctx, "/v2/tickers?symbols="+symbols)
	if err != nil {
		return nil, err
	}
	at, err := answer.time()
	if err != nil {
		return nil, err
	}
	quote, err := readBitfinex(answer.body, at)
	if err != nil {
		return nil, err
	}
	return b.each(coins, quote), nil
}

func readBitfinex(body []byte, at time.Time) (func(symbol string) Quote, error) {
	// A trading pair's row: SYMBOL, BID, BID_SIZE, ASK, ASK_SIZE, DAILY_CHANGE, DAILY_CHANGE_RELATIVE, LAST_PRICE, VOLUME, HIGH, LOW.
	const (
		symbolAt = 0
		lastAt   = 7
		fields   = 11
	)
	var answer []json.RawMessage
	if json.Unmarshal(body, &answer) != nil {
		return nil, errUndocumented
	}
	quotes := map[string]Quote{}
	for _, raw := range answer {
		var row []text
		if json.Unmarshal(raw, &row) != nil || len(row) == 0 {
			return nil, errUndocumented // also an error: ["error", number, message]
		}
		symbol := string(row[symbolAt])
		_, twice := quotes[symbol]
		switch {
		case twice:
			quotes[symbol] = Quote{Err: errTwoQuotes}
		case len(row) < fields:
			quotes[symbol] = Quote{Err: errUndocumented}
		default:
			quotes[symbol] = newQuote(row[lastAt], at)
		}
	}
	return func(symbol string) Quote {
		quote, there := quotes[symbol]
		if !there {
			return Quote{Err: errNoQuote}
		}
		return quote
	}, nil
}
