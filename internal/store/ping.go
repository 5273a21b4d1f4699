package store

import (
	"context"
	"fmt"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store/postgres"
)

// Ping returns an error if the database does not answer, or can't be written
// to. On PostgreSQL it wraps a card.Unready that has the reason.
func (s *Store) Ping(ctx context.Context) error {
	if s.pg == nil {
		return s.fail("ping", s.r.PingContext(ctx))
	}
	err := s.fail("ping", s.pg.Ping(ctx, s.r))
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", card.Unready(WhyUnready(err)), err)
}

// WhyUnready returns the reason why the database can't be used, in words that
// can be shown to anyone.
func WhyUnready(err error) string { return postgres.WhyUnready(err) }

// Clock returns the time by the database's clock.
func (s *Store) Clock(ctx context.Context) (time.Time, error) {
	var now int64
	err := s.get(ctx, s.r, &now, "read clock", "SELECT "+s.dialect.now)
	return fromMillis(now), err
}
