package operator

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Stats are what a database says about itself at one moment, for monitoring.
// Nothing in them names a card, an account or an address.
type Stats struct {
	Coins []CoinStats
	// Intents counts the intents to issue a card that are not done, by state;
	// each state is there.
	Intents map[string]int64
	// OldestIntent is how long the oldest open or pending intent has waited. 0
	// if there is none.
	OldestIntent time.Duration
	// OpenQuotes is what the cards are worth that wait for their payment, and
	// OpenCards how many there are.
	OpenQuotes card.USD
	OpenCards  int64
	// Backlog counts the deliveries to enabled webhooks that are still to be
	// made.
	Backlog int64
	// OldestDelivery is for how long the oldest of those that are due now has
	// been due. 0 if none is due.
	OldestDelivery time.Duration
	// Stock is what is left of the suppliers that give out cards from a stock.
	Stock []StockStats
}

// CoinStats are the statistics of one coin.
type CoinStats struct {
	Coin          card.Currency
	FreeAddresses int64
	Epoch         int64      // 0 while nobody attests to one
	Unattributed  card.Total // came to addresses of no card, and nobody has decided about it
	Held          card.Total // came late or too little, and an operator decides about it
	HeldCards     int64
	ReversedCards int64 // issued or refunded, and their money left the chain
}

// StockStats are how many cards of one amount a supplier has left.
type StockStats struct {
	Supplier string
	USD      card.USD
	Left     int64
}
