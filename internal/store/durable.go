package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/cardmint/cardmint/internal/panics"
	"github.com/cardmint/cardmint/internal/store/postgres"
)

// Every acknowledged commit is durable: with synchronous replication, a standby
// has it. PostgreSQL commits on the primary first and waits for the standby
// afterwards. Canceling the wait can't undo the commit, so the server only
// warns. Hence three rules:
//   - No caller cuts off a commit (runDetached).
//   - A commit with that warning has an unknown outcome
//     (postgres.ErrUnreplicated).
//   - A row that an earlier attempt may have left behind is acknowledged only
//     after a commit of our own (AwaitReplication).

// errUnknown means that a statement continues after its caller has returned.
var errUnknown = errors.New("the outcome is unknown")

// runDetached runs f, which commits, and returns its error. If ctx ends first, it
// returns errUnknown immediately, and f continues in the background until its
// own context ends, after txTimeout.
func (s *Store) runDetached(ctx context.Context, f func(context.Context) error) error {
	if s.SingleWriter() {
		return f(ctx)
	}
	own, cancel := detach(ctx)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- panics.Call(func() error { return f(own) })
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errUnknown, ctx.Err())
	}
}

// detach returns a context that ends after txTimeout, not with ctx.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(postgres.WithCaller(context.WithoutCancel(ctx), ctx), txTimeout)
}

// acquireWriter waits until one more connection may write. Commits may wait for a
// standby for a long time, so one connection in eight is reserved for reads.
// The caller must call release.
func (s *Store) acquireWriter(ctx context.Context) (release func(), err error) {
	if s.writers == nil {
		return func() {}, nil
	}
	select {
	case s.writers <- struct{}{}:
		return func() { <-s.writers }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// AwaitReplication implements order.Store. It takes one round trip, and commits a
// message without readers: a standby has all earlier commits once it has this
// one.
func (s *Store) AwaitReplication(ctx context.Context) error {
	if s.dialect.awaitReplication == "" {
		return nil
	}
	var nothing sql.NullString
	return s.get(ctx, s.w, &nothing, "await replication", s.dialect.awaitReplication)
}
