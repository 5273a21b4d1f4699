package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
)

// TraceParents implements trace.Cards.
func (s *Store) TraceParents(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	parents := map[uuid.UUID]string{}
	err := inChunks(ids, func(some []uuid.UUID) error {
		query, args, err := sqlx.In("SELECT uuid, trace_parent FROM cards WHERE uuid IN (?) AND trace_parent IS NOT NULL",
			some)
		if err != nil {
			return err
		}
		var found []struct {
			UUID        uuid.UUID `db:"uuid"`
			TraceParent string    `db:"trace_parent"`
		}
		if err := s.list(ctx, s.r, &found, "select traces", query, args...); err != nil {
			return err
		}
		for _, f := range found {
			parents[f.UUID] = f.TraceParent
		}
		return nil
	})
	return parents, err
}
