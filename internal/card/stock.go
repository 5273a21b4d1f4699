package card

import (
	"time"

	"github.com/google/uuid"
)

// StockState is the state of a card that was bought ahead.
type StockState string

const (
	StockFree     StockState = "free"
	StockReserved StockState = "reserved" // for an order that can still be paid
	StockIssued   StockState = "issued"   // given out permanently
	StockHeld     StockState = "held"     // possibly given out before the database went back in time
)

// StockItem is a card that was bought ahead.
type StockItem struct {
	ID         uuid.UUID
	Supplier   string
	USD        USD
	State      StockState
	ExpiresAt  time.Time // end of the month printed on the card
	NumberHash []byte    // keyed
	Sealed     *Sealed   // encrypted for ID; nil once the card it was issued to has stored credentials
}

// StockCount counts items of a stock that are alike.
type StockCount struct {
	Supplier  string
	USD       USD
	State     StockState
	ExpiresAt time.Time
	Items     int64
}

// UnresolvedItem is an item that needs an operator: it is held, or was issued
// to a card that never received it.
type UnresolvedItem struct {
	StockItem
	CardUUID uuid.UUID // of the card it is reserved for or was issued to; zero for none
}
