package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// A row is damaged if this version can't decode it: it was changed by hand, or
// a newer version wrote it. It is left out of what is read together with other
// rows, and reported to the operator; only who asks for it alone gets an error.
// No row is ever quoted.

// corruptRows reports damaged rows, each once. Its zero value is ready for use.
type corruptRows struct {
	mu       sync.Mutex
	log      *slog.Logger // slog.Default() if it is nil
	reported map[corruptThing]bool
}

// corruptThing is a row, or a part of one that can be read without.
type corruptThing struct {
	what string
	id   uuid.UUID
}

// maxReported limits how many reported rows are remembered. Beyond that, some
// are reported again.
const maxReported = 10_000

// LogTo sets where damaged rows are reported. Defaults to slog.Default().
func (s *Store) LogTo(log *slog.Logger) {
	s.corrupt.mu.Lock()
	defer s.corrupt.mu.Unlock()
	s.corrupt.log = log
}

// ReportCorrupt implements order.Store. what is the name of the thing whose row
// is damaged, and id is its own.
func (s *Store) ReportCorrupt(ctx context.Context, what string, id uuid.UUID, err error) {
	d := &s.corrupt
	d.mu.Lock()
	defer d.mu.Unlock()
	thing := corruptThing{what, id}
	if d.reported[thing] {
		return
	}
	if d.reported == nil || len(d.reported) == maxReported {
		d.reported = map[corruptThing]bool{}
	}
	d.reported[thing] = true
	log := d.log
	if log == nil {
		log = slog.Default()
	}
	log.ErrorContext(ctx, "a row can't be decoded: it needs an operator, and is left out until then", what, id, "error",
		err)
}

var (
	errUnknownCurrency = errors.New("this version does not know its currency")
	errUnknownState    = errors.New("this version does not know the state of its payment")
)

// corruptCard is a card whose row is damaged.
type corruptCard struct {
	id  uuid.UUID
	err error // why
}

func (d corruptCard) Error() string {
	return fmt.Sprintf("card %s: %s: %s", d.id, card.ErrCorrupt, d.err)
}

func (d corruptCard) Unwrap() []error { return []error{card.ErrCorrupt, d.err} }

// decode returns the cards in rows, and separately those that are damaged.
func (s *Store) decode(rows []cardRow) (cards []*card.Card, damaged []corruptCard) {
	cards = make([]*card.Card, 0, len(rows))
	for i := range rows {
		c, err := s.card(&rows[i])
		if err != nil {
			damaged = append(damaged, corruptCard{rows[i].UUID, err})
			continue
		}
		cards = append(cards, c)
	}
	return cards, damaged
}

// leaveOut reports damaged cards.
func (s *Store) leaveOut(ctx context.Context, damaged []corruptCard) {
	for _, d := range damaged {
		s.ReportCorrupt(ctx, "card", d.id, d.err)
	}
}
