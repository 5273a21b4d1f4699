package card_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

func TestFirstUUID_DividesCardsByTime(t *testing.T) {
	for range 100 {
		id := uuid.Must(uuid.NewV7())
		at := card.TimeOf(id)
		for _, tt := range []struct {
			time    time.Time
			earlier bool // the card is
		}{
			{at, false}, {at.Add(-time.Nanosecond), false}, {at.Add(time.Nanosecond), true}, {at.Add(time.Millisecond), true},
			{at.In(time.FixedZone("east", 3600)), false}, {time.Time{}, false}, {time.UnixMilli(-1), false},
			{time.UnixMilli(0), false},
			{time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), true},
			{time.Date(99_999, 1, 1, 0, 0, 0, 0, time.UTC), true},
		} {
			first := card.FirstUUID(tt.time)
			if earlier := bytes.Compare(id[:], first[:]) < 0; earlier != tt.earlier {
				t.Errorf("%s of %s before %s of %s: %t", id, at, first, tt.time, earlier)
			}
		}
	}
}
