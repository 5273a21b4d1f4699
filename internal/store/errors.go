package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/cardmint/cardmint/internal/batch"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store/postgres"
)

// fail converts a driver's error into one of package card if there is one, with
// the original as the cause for the log.
func (s *Store) fail(operation string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		return card.ErrNoRow
	}
	wrapped := fmt.Errorf("%s: %w", operation, err)
	var network net.Error
	pool, denied := postgres.PoolError(err), deniedByServer(err)
	switch {
	case s.dialect.isDuplicate(err):
		return fmt.Errorf("%w: %w", card.ErrDuplicate, wrapped)
	case denied != nil:
		return fmt.Errorf("%s: %w", operation, denied)
	case pool != nil:
		return card.ErrUnavailable.WithCause(fmt.Errorf("%w: %w", pool, wrapped))
	case s.dialect.isUnavailable(err), s.dialect.isRetryable(err), errors.Is(err, errUnknown),
		errors.Is(err, batch.ErrOutcomeUnknown),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		errors.As(err, &network), errors.Is(err, context.DeadlineExceeded),
		strings.Contains(err.Error(), "sql: database is closed"):
		return card.ErrUnavailable.WithCause(wrapped)
	}
	return wrapped
}
