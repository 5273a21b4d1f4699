package store

import (
	"context"
	"time"

	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/webhook"
)

// SettleTx implements settle.Store.
func (s *Store) SettleTx(ctx context.Context, f func(settle.Tx) error) error {
	return s.inTx(ctx, func(t *tx) error {
		t.t = prepared{t.t}
		return f(t)
	})
}

// OperatorTx implements operator.Store.
func (s *Store) OperatorTx(ctx context.Context, f func(operator.Tx) error) error {
	return s.inTx(ctx, func(t *tx) error { return f(t) })
}

// IssueTx implements issue.Store.
func (s *Store) IssueTx(ctx context.Context, f func(issue.Tx) error) error {
	return s.inTx(ctx, func(t *tx) error {
		t.t, t.requireAttestation = prepared{t.t}, s.requireAttestation.Load()
		return f(t)
	})
}

// WebhookTx implements webhook.Store and webhook.Outbox.
func (s *Store) WebhookTx(ctx context.Context, f func(webhook.Tx) error) error {
	return s.inTx(ctx, func(t *tx) error {
		t.t, t.requireAttestation = prepared{t.t}, s.requireAttestation.Load()
		return f(t)
	})
}

// maxAttempts limits how often a transaction runs if the database can't
// serialize it.
const maxAttempts = 5

// LongestWrite implements keys.Store.
func (s *Store) LongestWrite() time.Duration { return maxAttempts * txTimeout }

func (s *Store) inTx(ctx context.Context, f func(*tx) error) error {
	var err error
	for range maxAttempts {
		if err = s.tryTx(ctx, f); err == nil || !s.dialect.isRetryable(err) {
			break
		}
	}
	return err
}

// txTimeout limits a transaction, including its waits.
const txTimeout = time.Minute

// claimTimeout limits the statements that acquire a lease, claim intents or
// webhooks, or take addresses: after that they return card.ErrUnavailable. They
// take milliseconds unless another process has locked the rows. Callers retry
// later instead of blocking their own callers.
const claimTimeout = 5 * time.Second

func (s *Store) tryTx(ctx context.Context, f func(*tx) error) error {
	done, err := s.acquireWriter(ctx)
	if err != nil {
		return s.fail("begin", err)
	}
	conn, err := s.w.Connx(ctx)
	if err != nil {
		done()
		return s.fail("begin", err)
	}
	// The transaction does not end with ctx: if a canceled context cut off
	// COMMIT, its outcome would be unknown.
	committing, cancel := detach(ctx)
	end := func() {
		cancel()
		_ = conn.Close()
		done()
	}
	handedOver := false
	defer func() {
		if !handedOver {
			end()
		}
	}()
	t, err := conn.BeginTxx(committing, nil)
	if err != nil {
		return s.fail("begin", err)
	}
	if err := f(&tx{s: s, t: t}); err != nil {
		_ = t.Rollback()
		return err
	}
	if err := ctx.Err(); err != nil {
		_ = t.Rollback()
		return s.fail("commit", err)
	}
	handedOver = true
	return s.fail("commit", s.runDetached(ctx, func(context.Context) error {
		defer end()
		return t.Commit()
	}))
}

// tx implements the Tx of every actor.
type tx struct {
	s                  *Store
	t                  runner
	requireAttestation bool // see RequireAttestation
}

var (
	_ issue.Tx    = (*tx)(nil)
	_ operator.Tx = (*tx)(nil)
	_ settle.Tx   = (*tx)(nil)
	_ webhook.Tx  = (*tx)(nil)
)
