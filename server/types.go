package server

import (
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// Time is a time in UTC with exactly three fractional digits.
type Time time.Time

// MarshalText implements encoding.TextMarshaler. In JSON, the time is a string.
func (t Time) MarshalText() ([]byte, error) {
	return card.AppendTime(nil, time.Time(t)), nil
}

// usdNumber is an amount of US dollars that is a JSON number.
type usdNumber card.USD

// MarshalJSON implements json.Marshaler. It writes the shortest exact number:
// 150, 150.5, 150.55.
func (u usdNumber) MarshalJSON() ([]byte, error) {
	return []byte(card.Decimal{Units: int64(u), Scale: 2}.String()), nil
}
