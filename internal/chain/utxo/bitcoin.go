// Package utxo has the coins that descend from Bitcoin.
//
// It may import packages card, settle, chain/driver and chain/rpc.
package utxo

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/driver"
)

// Bitcoin has rates only: payments can't be watched yet.
func Bitcoin() driver.Coin {
	return driver.Coin{
		Currency: card.Currency{Code: "bitcoin", Name: "Bitcoin", Decimals: 8, Supply: 21_000_000_00000000, Confirmations: 2,
			BlockTime: 10 * time.Minute, AmountKey: "amount"},
		Markets: map[string]string{"bitfinex": "tBTCUSD", "coinbase": "BTC-USD", "coingecko": "bitcoin",
			"kraken": "XXBTZUSD"},
	}
}
