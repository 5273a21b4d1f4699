package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// inBubble runs a test on SQLite in a synctest bubble. The receiver is outside
// of the bubble, whose clock stands still during a request. The receiver closes
// every connection, because an idle one would stop the clock permanently.
func inBubble(t *testing.T, answer func(n int) int, f func(t *testing.T, s *fixture, r *receiver)) {
	t.Helper()
	r, url := startReceiver(t, answer, false), databases.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, url)
		s.bubble = true
		f(t, s, r)
	})
}

// unreliable is a real store that records the sender's calls, and fails on
// request.
type unreliable struct {
	*store.Store
	s *fixture
}

var errStore = card.ErrUnavailable.WithCause(errors.New("the database restarts"))

func (u unreliable) failure(method string) error {
	if u.s.fails == method {
		return errStore
	}
	return nil
}

func (u unreliable) WebhookTx(ctx context.Context, f func(webhook.Tx) error) error {
	if err := u.failure("WebhookTx"); err != nil {
		return err
	}
	do := func() error { return u.Store.WebhookTx(ctx, f) }
	if u.s.around == nil {
		return do()
	}
	return u.s.around(do)
}

func (u unreliable) ClaimWebhooks(ctx context.Context, now time.Time, n int, ttl time.Duration) ([]*webhook.Claim,
	error) {
	u.s.called("claim %d for %v", n, ttl)
	if err := u.failure("ClaimWebhooks"); err != nil {
		return nil, err
	}
	return u.Store.ClaimWebhooks(ctx, now, n, ttl)
}

func (u unreliable) DueDeliveries(ctx context.Context, id uuid.UUID, now time.Time, n int) ([]webhook.Delivery, error) {
	u.s.called("due %d", n)
	if err := u.failure("DueDeliveries"); err != nil {
		return nil, err
	}
	if u.s.due != nil {
		return u.s.due(id)
	}
	return u.Store.DueDeliveries(ctx, id, now, n)
}

func (u unreliable) DueRetries(ctx context.Context, id uuid.UUID, now time.Time, n int) ([]webhook.Delivery, error) {
	u.s.called("retries %d", n)
	if err := u.failure("DueRetries"); err != nil {
		return nil, err
	}
	return u.Store.DueRetries(ctx, id, now, n)
}

func (u unreliable) ReleaseWebhook(ctx context.Context, c *webhook.Claim) error {
	u.s.called("release")
	if err := u.failure("ReleaseWebhook"); err != nil {
		return err
	}
	return u.Store.ReleaseWebhook(ctx, c)
}

func (u unreliable) WebhookByID(ctx context.Context, account, id uuid.UUID) (*webhook.Webhook, error) {
	if err := u.failure("WebhookByID"); err != nil {
		return nil, err
	}
	return u.Store.WebhookByID(ctx, account, id)
}

func (u unreliable) DeleteDeliveries(ctx context.Context, id uuid.UUID, n int) (int64, error) {
	if err := u.failure("DeleteDeliveries"); err != nil {
		return 0, err
	}
	return u.Store.DeleteDeliveries(ctx, id, n)
}

func (u unreliable) Deliveries(ctx context.Context, id uuid.UUID, filter webhook.DeliveryFilter) ([]webhook.Delivery,
	error) {
	if err := u.failure("Deliveries"); err != nil {
		return nil, err
	}
	return u.Store.Deliveries(ctx, id, filter)
}

func (u unreliable) PruneReplies(ctx context.Context, before time.Time, n int) (int64, error) {
	if err := u.failure("PruneReplies"); err != nil {
		return 0, err
	}
	return u.Store.PruneReplies(ctx, before, n)
}

func (u unreliable) SeqBefore(ctx context.Context, account uuid.UUID, since time.Time) (int64, error) {
	if err := u.failure("SeqBefore"); err != nil {
		return 0, err
	}
	return u.Store.SeqBefore(ctx, account, since)
}

func (u unreliable) Events(ctx context.Context, account uuid.UUID, after int64, limit int) ([]card.Event, error) {
	if err := u.failure("Events"); err != nil {
		return nil, err
	}
	return u.Store.Events(ctx, account, after, limit)
}

func (u unreliable) LastSeq(ctx context.Context, account uuid.UUID) (int64, error) {
	if err := u.failure("LastSeq"); err != nil {
		return 0, err
	}
	return u.Store.LastSeq(ctx, account)
}

func (u unreliable) CardEvents(ctx context.Context, account, id uuid.UUID, after int64, limit int) ([]card.Event,
	error) {
	if err := u.failure("CardEvents"); err != nil {
		return nil, err
	}
	return u.Store.CardEvents(ctx, account, id, after, limit)
}

func (u unreliable) LastSeqs(ctx context.Context, accounts []uuid.UUID) (map[uuid.UUID]int64, error) {
	u.s.called("last of %d accounts", len(accounts))
	if err := u.failure("LastSeqs"); err != nil {
		return nil, err
	}
	return u.Store.LastSeqs(ctx, accounts)
}

func (u unreliable) LastSeqsOfCards(ctx context.Context, cards []uuid.UUID) (map[webhook.Topic]int64, error) {
	u.s.called("last of %d cards", len(cards))
	if err := u.failure("LastSeqsOfCards"); err != nil {
		return nil, err
	}
	return u.Store.LastSeqsOfCards(ctx, cards)
}

func (u unreliable) PruneDeliveries(ctx context.Context, before time.Time, n int) (int64, error) {
	if err := u.failure("PruneDeliveries"); err != nil {
		return 0, err
	}
	return u.Store.PruneDeliveries(ctx, before, n)
}

func (s *fixture) called(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

// took returns the calls since the last time.
func (s *fixture) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// log is a concurrency-safe log.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
