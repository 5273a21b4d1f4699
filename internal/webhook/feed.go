package webhook

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// ListEvents returns the account's events whose Seq is greater than after, in the order of Seq, at most limit, and whether there are more.
// It costs one round trip to the store, or two if there is nothing new.
func (s *Service) ListEvents(ctx context.Context, account uuid.UUID, after int64, limit int) ([]card.Event, bool, error) {
	es, err := s.store.Events(ctx, account, after, limit+1)
	if err != nil {
		return nil, false, err
	}
	if len(es) == 0 && after > 0 { // either nothing is new, or after was never assigned, as when a backup was restored
		newest, err := s.store.LastSeq(ctx, account)
		if err != nil {
			return nil, false, err
		}
		if after > newest {
			return nil, false, card.ErrInvalidRequest.WithFields(card.FieldError{Pointer: "query/after", Detail: fmt.Sprintf("is greater than the seq of the newest event, %d: begin again from an event that you are sure of", newest)})
		}
	}
	more := len(es) > limit
	return slices.Clip(es[:min(limit, len(es))]), more, nil
}
