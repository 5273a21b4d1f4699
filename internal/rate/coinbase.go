package rate

import (
	"context"
	"encoding/json"
	"time"
)

// coinbase quotes the price and time of the last trade on Coinbase Exchange,
// with one request per market. Source:
// https://docs.cdp.coinbase.com/api-reference/exchange-api/rest-api/products/get-product-ticker.
type coinbase struct{ site }

func newCoinbase(s site) Source { return coinbase{s} }

// Fetch implements Source.
func (c coinbase) Fetch(ctx context.Context, coins []string) (map[string]Quote, error) {
	return c.each(coins, func(product string) Quote {
		body, err := c.get(ctx, "/products/"+product+"/ticker")
		if err != nil {
			return Quote{Err: err}
		}
		return readCoinbase(body)
	}), nil
}

func readCoinbase(body []byte) Quote {
	var ticker struct {
		Price text `json:"price"`
		Time  text `json:"time"`
	}
	if json.Unmarshal(body, &ticker) != nil {
		return Quote{Err: errUndocumented}
	}
	at, err := time.Parse(time.RFC3339, string(ticker.Time))
	if err != nil {
		return Quote{Err: errNoTime}
	}
	return newQuote(ticker.Price, at)
}
