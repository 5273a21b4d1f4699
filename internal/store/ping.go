package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/cardmint/cardmint/internal/card"
)

// Codes of the errors of statements that need a server that can be written to,
// in a session with one that can't.
const (
	readOnlyTransaction = "25006"
	wrongState          = "55000" // a standby says so when it is asked for its place in the log of transactions
	featureNotSupported = "0A000" // among others, of a standby that is to begin a transaction that may write
)

// cannotWrite reports whether an error means that the session can't write, and
// another one is to be tried.
func cannotWrite(e *pq.Error) bool { return e.Code == readOnlyTransaction || e.Code == wrongState }

var errReadOnly = errors.New("the session is read only")

// Ping returns an error if the database does not answer, or can't be written
// to. On PostgreSQL it is a card.Unready that says why.
func (s *Store) Ping(ctx context.Context) error {
	if s.pg == nil {
		return s.fail("ping", s.r.PingContext(ctx))
	}
	err := s.pingServer(ctx)
	if errors.Is(err, errReadOnly) {
		s.pg.distrust()
		err = s.pingServer(ctx) // that session may be older than the database's recovery
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", card.Unready(WhyUnready(err)), err)
}

// Clock returns the time by the database's clock.
func (s *Store) Clock(ctx context.Context) (time.Time, error) {
	var now int64
	err := s.get(ctx, s.r, &now, "read clock", "SELECT "+s.dialect.now)
	return fromMillis(now), err
}

func (s *Store) pingServer(ctx context.Context) error {
	var readOnly string
	if err := s.get(ctx, s.r, &readOnly, "ping", "SHOW transaction_read_only"); err != nil { // also on in a standby
		return err
	}
	if readOnly == "on" {
		return errReadOnly
	}
	return nil
}

// WhyUnready says in words for anybody why the database can't be used.
func WhyUnready(err error) string {
	var e *pq.Error
	errors.As(err, &e)
	switch text := err.Error(); {
	case errors.Is(err, ErrPoolMode), errors.Is(err, ErrPoolParameters):
		return "wrong mode of the connection pooler"
	// of lib/pq
	case errors.Is(err, errReadOnly), strings.Contains(text, "session is read-only"),
		strings.Contains(text, "in hot standby mode"):
		return "read only"
	case e == nil:
	case cannotWrite(e):
		return "read only"
	case e.Code.Class() == "28":
		return "login refused"
	case e.Code == "3D000":
		return "database missing"
	case e.Code == "57P03":
		return "starting up or shutting down"
	case e.Code == "53300":
		return "too many connections"
	}
	return "does not answer"
}
