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

// A row is corrupt if this version can't decode it: it was changed by hand, or
// a newer version wrote it. Lists omit it and report it to the operator. Only
// reading it alone returns an error. Errors and logs never quote a row.

// corruptRows reports corrupt rows, each once. Its zero value is ready for use.
type corruptRows struct {
	mu       sync.Mutex
	log      *slog.Logger // slog.Default() if it is nil
	reported map[corruptThing]bool
}

// corruptThing is a row, or an optional part of a row.
type corruptThing struct {
	kind string
	id   uuid.UUID
}

// maxReported is how many reported rows are remembered. Beyond that, some are
// reported again.
const maxReported = 10_000

// LogTo sets where corrupt rows are reported. Defaults to slog.Default().
func (s *Store) LogTo(log *slog.Logger) {
	s.corrupt.mu.Lock()
	defer s.corrupt.mu.Unlock()
	s.corrupt.log = log
}

// ReportCorrupt implements order.Store. kind is the kind of the corrupt item,
// and id is its UUID.
func (s *Store) ReportCorrupt(ctx context.Context, kind string, id uuid.UUID, err error) {
	d := &s.corrupt
	d.mu.Lock()
	defer d.mu.Unlock()
	thing := corruptThing{kind, id}
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
	log.ErrorContext(ctx, "a row can't be decoded and is skipped until an operator repairs it", kind, id, "error", err)
}

var (
	errUnknownCurrency = errors.New("this version does not know its currency")
	errUnknownState    = errors.New("this version does not know the state of its payment")
)

// corruptCardError is a card whose row is corrupt.
type corruptCardError struct {
	id  uuid.UUID
	err error // why
}

func (d corruptCardError) Error() string {
	return fmt.Sprintf("card %s: %s: %s", d.id, card.ErrCorrupt, d.err)
}

func (d corruptCardError) Unwrap() []error { return []error{card.ErrCorrupt, d.err} }

// decode returns the cards of rows, and separately the corrupt ones.
func (s *Store) decode(rows []cardRow) (cards []*card.Card, corrupt []corruptCardError) {
	cards = make([]*card.Card, 0, len(rows))
	for i := range rows {
		c, err := s.card(&rows[i])
		if err != nil {
			corrupt = append(corrupt, corruptCardError{rows[i].UUID, err})
			continue
		}
		cards = append(cards, c)
	}
	return cards, corrupt
}

// reportCorruptCards reports corrupt cards.
func (s *Store) reportCorruptCards(ctx context.Context, corrupt []corruptCardError) {
	for _, d := range corrupt {
		s.ReportCorrupt(ctx, "card", d.id, d.err)
	}
}
