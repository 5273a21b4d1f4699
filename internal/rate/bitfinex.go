package rate

import (
	"context"
	"encoding/json"
	"strconv"
	"time"
)

// bitfinex quotes the price and time of the last trade, with one request per
// market. Its tickers have no time, so they can't reveal that trading has
// stopped. Source: https://docs.bitfinex.com/reference/rest-public-trades.
type bitfinex struct{ site }

func newBitfinex(s site) Source { return bitfinex{s} }

// Fetch implements Source.
func (b bitfinex) Fetch(ctx context.Context, coins []string) (map[string]Quote, error) {
	return b.each(coins, func(symbol string) Quote {
		body, err := b.get(ctx, "/v2/trades/"+symbol+"/hist?limit=1&sort=-1")
		if err != nil {
			return Quote{Err: err}
		}
		return readBitfinex(body)
	}), nil
}

func readBitfinex(body []byte) Quote {
	// A trade's row: ID, time in milliseconds, AMOUNT, PRICE. An error is
	// ["error", number, message].
	const (
		timeAt  = 1
		priceAt = 3
		fields  = 4
	)
	var trades [][]text
	switch {
	case json.Unmarshal(body, &trades) != nil:
		return Quote{Err: errUndocumented}
	case len(trades) == 0:
		return Quote{Err: errNoQuote}
	case len(trades[0]) < fields:
		return Quote{Err: errUndocumented}
	}
	ms, err := strconv.ParseInt(string(trades[0][timeAt]), 10, 64)
	if err != nil {
		return Quote{Err: errNoTime}
	}
	return newQuote(trades[0][priceAt], time.UnixMilli(ms))
}
