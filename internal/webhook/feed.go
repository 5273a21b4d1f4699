package webhook

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// EventFilter selects events of an account.
type EventFilter struct {
	CardUUID uuid.UUID // only events of this card; the zero UUID for all events
	After    int64     // only events whose Seq is greater
	Limit    int
}

// ListEvents returns the account's matching events in the order of Seq, and
// whether there are more than filter.Limit. It costs one query, or two if there
// are no events.
func (s *Service) ListEvents(ctx context.Context, account uuid.UUID, filter EventFilter) ([]card.Event, bool, error) {
	after, limit := filter.After, filter.Limit
	es, err := s.eventsOf(ctx, account, filter)
	if err != nil {
		return nil, false, err
	}
	if len(es) == 0 && after > 0 { // either nothing is new, or after was never assigned, as when a backup was restored
		newest, err := s.store.LastSeq(ctx, account)
		if err != nil {
			return nil, false, err
		}
		if after > newest {
			return nil, false,
				card.ErrInvalidRequest.WithFields(
					card.FieldError{Pointer: "query/after",
						Detail: fmt.Sprintf(
							"is greater than the seq of the newest event, %d: begin again from an event that you are sure of", newest)})
		}
	}
	more := len(es) > limit
	return slices.Clip(es[:min(limit, len(es))]), more, nil
}
