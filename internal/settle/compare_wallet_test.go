package settle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/settle"
)

// twoSides is a wallet and the database it is compared with.
type twoSides struct {
	beacon settle.Beacon
	cursor settle.Cursor
	pool   settle.Pool
	reads  int
	onRead func(*twoSides)
}

func (s *twoSides) Identify(context.Context) (string, error)                 { return "mainnet x", nil }
func (s *twoSides) Holds(context.Context, settle.Address) error              { return nil }
func (s *twoSides) Beacon(context.Context) (settle.Beacon, error)            { return s.beacon, nil }
func (s *twoSides) AddressPool(context.Context, string) (settle.Pool, error) { return s.pool, nil }

func (s *twoSides) Cursor(context.Context, card.Currency) (settle.Cursor, error) {
	if s.reads++; s.onRead != nil {
		s.onRead(s)
	}
	return s.cursor, nil
}

func TestCompareWallet_WalletAhead_Fails(t *testing.T) {
	used := settle.Cursor{Fingerprint: "mainnet x"}
	for name, tt := range map[string]struct {
		sides twoSides
		want  error
	}{
		"equal": {
			twoSides{cursor: used, beacon: settle.Beacon{Epoch: 7, Position: 44}, pool: settle.Pool{Next: 45, LastEpoch: 7}},
			nil},
		"no beacon": {twoSides{cursor: used, pool: settle.Pool{Next: 45, LastEpoch: 7}}, nil},
		"a later epoch": {
			twoSides{cursor: used, beacon: settle.Beacon{Epoch: 8, Position: 44}, pool: settle.Pool{Next: 45, LastEpoch: 7}},
			settle.ErrDatabaseBehind},
		"a later address": {
			twoSides{cursor: used, beacon: settle.Beacon{Epoch: 7, Position: 45}, pool: settle.Pool{Next: 45, LastEpoch: 7}},
			settle.ErrDatabaseBehind},
		"an earlier epoch": {
			twoSides{cursor: used, beacon: settle.Beacon{Epoch: 6, Position: 99}, pool: settle.Pool{Next: 45, LastEpoch: 7}},
			nil},
		"a new database": {twoSides{beacon: settle.Beacon{Epoch: 8, Position: 44}}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			if _, err := settle.CompareWallet(t.Context(), &tt.sides, &tt.sides, card.Currency{Code: "monero"}); !errors.Is(err,
				tt.want) {
				t.Errorf("%s: error %v, want %v", name, err, tt.want)
			}
		})
	}
}

func TestCompareWallet_WorkerBetweenTwoWrites_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		sides := &twoSides{cursor: settle.Cursor{Fingerprint: "mainnet x"}, beacon: settle.Beacon{Epoch: 8},
			pool: settle.Pool{Next: 1, LastEpoch: 7}}
		sides.onRead = func(s *twoSides) {
			if s.reads == 3 {
				s.pool.LastEpoch = 8
			}
		}
		if _, err := settle.CompareWallet(t.Context(), sides, sides, card.Currency{Code: "monero"}); err != nil ||
			sides.reads != 3 {
			t.Errorf("%d reads after %s, error %v", sides.reads, time.Since(start), err)
		}
	})
}
