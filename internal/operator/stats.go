package operator

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Stats are a snapshot of the database for metrics. They contain no card,
// account or address.
type Stats struct {
	Coins []CoinStats
	// Intents counts the unfinished intents by state. Every state is present.
	Intents map[string]int64
	// OldestIntent is the age of the oldest open or pending intent; 0 if there
	// is none.
	OldestIntent time.Duration
	// OpenQuotes is the sum of the cards that wait for their payment, and
	// OpenCards their number.
	OpenQuotes card.USD
	OpenCards  int64
	// Backlog counts the pending deliveries to enabled webhooks.
	Backlog int64
	// OldestDelivery is how long the oldest of them has been due; 0 if none is
	// due.
	OldestDelivery time.Duration
	// Stock lists the remaining cards of suppliers with a stock.
	Stock []StockStats
}

// CoinStats are the statistics of one coin.
type CoinStats struct {
	Coin          card.Currency
	FreeAddresses int64
	Epoch         int64      // 0 while no process attests to one
	Unattributed  card.Total // undecided money at addresses without a card
	Held          card.Total // late or insufficient payments, which need an operator
	HeldCards     int64
	ReversedCards int64 // issued or refunded cards whose money left the chain
}

// StockStats is the remaining stock of one amount at a supplier.
type StockStats struct {
	Supplier string
	USD      card.USD
	Left     int64
}
