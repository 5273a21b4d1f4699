package rate

import (
	"context"
	"encoding/json"
	"strconv"
	"time"
)

// coingecko quotes an average over many exchanges, with its time. Without an
// API key the response may be a minute old. Source:
// https://docs.coingecko.com/v3.0.1/reference/simple-price.
type coingecko struct{ site }

func newCoinGecko(s site) Source { return coingecko{s} }

// Fetch implements Source.
func (c coingecko) Fetch(ctx context.Context, coins []string) (map[string]Quote, error) {
	ids := c.list(coins)
	if ids == "" {
		return nil, nil
	}
	body, err := c.get(ctx,
		"/api/v3/simple/price?vs_currencies=usd&include_last_updated_at=true&precision=full&ids="+ids)
	if err != nil {
		return nil, err
	}
	quote, err := readCoinGecko(body)
	if err != nil {
		return nil, err
	}
	return c.each(coins, quote), nil
}

func readCoinGecko(body []byte) (func(id string) Quote, error) {
	var answer map[string]json.RawMessage
	if json.Unmarshal(body, &answer) != nil {
		return nil, errUndocumented
	}
	return func(id string) Quote {
		var price struct {
			USD text `json:"usd"`
			At  text `json:"last_updated_at"` // seconds since 1970
		}
		raw, there := answer[id]
		switch {
		case !there:
			return Quote{Err: errNoQuote}
		case json.Unmarshal(raw, &price) != nil:
			return Quote{Err: errUndocumented}
		}
		seconds, err := strconv.ParseInt(string(price.At), 10, 64)
		if err != nil {
			return Quote{Err: errNoTime}
		}
		return newQuote(price.USD, time.Unix(seconds, 0))
	}, nil
}
