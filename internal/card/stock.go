package card

import (
	"time"

	"github.com/google/uuid"
)

// StockState says what became of a card that was bought ahead.
type StockState string

// The states.
const (
	StockFree     StockState = "free"
	StockReserved StockState = "reserved" // for an order that may still be paid
	StockIssued   StockState = "issued"   // given out, for good
	StockHeld     StockState = "held"     // the database went back in time: the card may have been given out
)

// StockItem is a card that was bought ahead.
type StockItem struct {
	ID         uuid.UUID
	Supplier   string
	USD        USD
	State      StockState
	ExpiresAt  time.Time // the end of the month that is on the card
	NumberHash []byte    // keyed
	Sealed     *Sealed   // tied to ID; nil once the credentials of the card that it was issued to are stored
}

// StockCount counts the items of a stock that are alike.
type StockCount struct {
	Supplier  string
	USD       USD
	State     StockState
	ExpiresAt time.Time
	Items     int64
}

// UnresolvedItem is an item that an operator has to look into: it is held, or was
// issued to a card which never got it.
type UnresolvedItem struct {
	StockItem
	CardUUID uuid.UUID // that it is reserved for or was issued to; zero for none
}
