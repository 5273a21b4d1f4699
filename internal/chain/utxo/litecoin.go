package utxo

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/driver"
)

// Litecoin has rates only: payments can't be watched yet.
func Litecoin() driver.Coin {
	return driver.Coin{
		Currency: card.Currency{Code: "litecoin", Name: "Litecoin", Decimals: 8, Supply: 84_000_000_00000000,
			Confirmations: 6, BlockTime: 150 * time.Second, AmountKey: "amount"},
		Markets: map[string]string{"bitfinex": "tLTCUSD", "coinbase": "LTC-USD", "coingecko": "litecoin",
			"kraken": "XLTCZUSD"},
	}
}
