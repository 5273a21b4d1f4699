package chain

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// bitcoin has rates only: payments can't be watched yet.
func bitcoin() Coin {
	return Coin{
		Currency: card.Currency{Code: "bitcoin", Name: "Bitcoin", Decimals: 8, Supply: 21_000_000_00000000, Confirmations: 2,
			BlockTime: 10 * time.Minute, AmountKey: "amount"},
		Markets: map[string]string{"bitfinex": "tBTCUSD", "coinbase": "BTC-USD", "coingecko": "bitcoin",
			"kraken": "XXBTZUSD"},
	}
}
