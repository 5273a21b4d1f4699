// Package chain is the registry of coins.
//
// The package of each protocol implements package driver for its coins. A new
// coin is one line in all.
package chain

import (
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/driver"
	"github.com/cardmint/cardmint/internal/chain/monero"
	"github.com/cardmint/cardmint/internal/chain/utxo"
)

// all is the registry: one line for each coin.
func all() []driver.Coin {
	return []driver.Coin{
		monero.Coin(),
		utxo.Bitcoin(),
		utxo.Litecoin(),
	}
}

// Coins returns the coins that cards can be paid with. The first is the
// default.
func Coins() []driver.Coin {
	var coins []driver.Coin
	for _, c := range all() {
		if c.Settings != nil {
			coins = append(coins, c)
		}
	}
	return coins
}

// Currencies returns the currencies of Coins.
func Currencies() []card.Currency {
	var currencies []card.Currency
	for _, c := range Coins() {
		currencies = append(currencies, c.Currency)
	}
	return currencies
}

// ByCode returns the coin with a code, if cards can be paid with it.
func ByCode(code string) (driver.Coin, bool) {
	for _, c := range Coins() {
		if c.Code == code {
			return c, true
		}
	}
	return driver.Coin{}, false
}

// Markets returns the names of markets by currency and rate source. It includes
// coins that cards cannot be paid with yet.
func Markets() map[string]map[string]string {
	markets := map[string]map[string]string{}
	for _, c := range all() {
		markets[c.Code] = c.Markets
	}
	return markets
}
