package rate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kraken quotes the price and time of the last trade, with one request per
// market. Its tickers have no time, so they can't reveal that trading has
// stopped. Source:
// https://docs.kraken.com/api-reference/market-data/get-recent-trades.
type kraken struct{ site }

func newKraken(s site) Source { return kraken{s} }

// Fetch implements Source.
func (k kraken) Fetch(ctx context.Context, coins []string) (map[string]Quote, error) {
	return k.each(coins, func(pair string) Quote {
		body, err := k.get(ctx, "/0/public/Trades?count=1&pair="+pair)
		if err != nil {
			return Quote{Err: err}
		}
		return readKraken(body, pair)
	}), nil
}

func readKraken(body []byte, pair string) Quote {
	// A trade's row: price, volume, time in seconds with decimals, and more.
	// The newest is the last.
	const (
		priceAt = 0
		timeAt  = 2
	)
	var answer struct {
		Error  []string                   `json:"error"`
		Result map[string]json.RawMessage `json:"result"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return Quote{Err: errUndocumented}
	}
	if len(answer.Error) > 0 {
		return Quote{Err: krakenError(answer.Error[0])}
	}
	var trades [][]text
	raw, there := answer.Result[pair]
	switch {
	case !there:
		return Quote{Err: errNoQuote}
	case json.Unmarshal(raw, &trades) != nil:
		return Quote{Err: errUndocumented}
	case len(trades) == 0:
		return Quote{Err: errNoQuote}
	}
	newest := trades[len(trades)-1]
	if len(newest) <= timeAt {
		return Quote{Err: errUndocumented}
	}
	whole, _, _ := strings.Cut(string(newest[timeAt]), ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return Quote{Err: errNoTime}
	}
	return newQuote(newest[priceAt], time.Unix(seconds, 0))
}

// krakenError returns an error with a code such as "EQuery:Unknown asset pair".
// It quotes nothing else.
func krakenError(code string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ: "
	if code == "" || len(code) > 60 || strings.Trim(code, letters) != "" {
		return errors.New("answers with an error")
	}
	return fmt.Errorf("answers with the error %s", code)
}
