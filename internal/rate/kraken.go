package rate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// kraken quotes the price of the last trade. The response body has no time. One request asks for all pairs, because the public limit is
// one request per second. A pair that Kraken does not know fails them all.
// Source: https://docs.kraken.com/api-reference/market-data/get-ticker-information.
type kraken struct{ site }

func newKraken(s site) Source { return kraken{s} }

// Fetch implements Source.
func (k kraken) Fetch(ctx context.Context, coins []string) (map[string]Quote, error) {
	pairs := k.list(coins)
	if pairs == "" { // an empty list would mean all
		return nil, nil
	}
	answer, err := k.get(ctx, "/0/public/Ticker?pair="+pairs)
	if err != nil {
		return nil, err
	}
	at, err := answer.time()
	if err != nil {
		return nil, err
	}
	quote, err := readKraken(answer.body, at)
	if err != nil {
		return nil, err
	}
	return k.each(coins, quote), nil
}

func readKraken(body []byte, at time.Time) (func(pair string) Quote, error) {
	var answer struct {
		Error  []string                   `json:"error"`
		Result map[string]json.RawMessage `json:"result"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return nil, errUndocumented
	}
	if len(answer.Error) > 0 {
		return nil, krakenError(answer.Error[0])
	}
	return func(pair string) Quote {
		var ticker struct {
			Closed []text `json:"c"` // price and volume of the last trade
		}
		raw, there := answer.Result[pair]
		switch {
		case !there:
			return Quote{Err: errNoQuote}
		case json.Unmarshal(raw, &ticker) != nil || len(ticker.Closed) == 0:
			return Quote{Err: errUndocumented}
		}
		return newQuote(ticker.Closed[0], at)
	}, nil
}

// krakenError returns an error that names a code such as "EQuery:Unknown asset pair". It does not quote anything else.
func krakenError(code string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ: "
	if code == "" || len(code) > 60 || strings.Trim(code, letters) != "" {
		return errors.New("answers with an error")
	}
	return fmt.Errorf("answers with the error %s", code)
}
