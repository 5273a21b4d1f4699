package cli

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/metrics"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/vault"
)

const (
	booksEvery = 10 * time.Second // how often a worker looks whether the books are due, at most
	// from when it begins to watch a chain until the first reading: a start has
	// other work to do
	booksSettle = time.Minute
)

// bookkeeper reconciles the books now and then, so that metrics say whether
// they agree. Of several workers one does: the one that watches a chain.
// Whoever stops to watch one forgets what it has read, for another one knows
// better.
type bookkeeper struct {
	every     time.Duration
	meter     *metrics.Metrics
	log       *slog.Logger
	now       func() time.Time
	reconcile func(context.Context) (operator.Books, error)

	mu      sync.Mutex
	leading map[string]bool // by coin
	due     time.Time       // of the next reading; zero while this process watches no chain
}

// openBooks returns a bookkeeper that reads the books so often; nil for never.
func openBooks(every time.Duration, meter *metrics.Metrics) *bookkeeper {
	if every == 0 {
		return nil
	}
	return &bookkeeper{every: every, meter: meter, now: time.Now, leading: map[string]bool{}}
}

// note notes whether this process watches the chain of a coin. A nil bookkeeper
// does nothing.
func (b *bookkeeper) note(coin string, leads bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leading[coin] = leads
}

// turn reports whether the books are to be read now.
func (b *bookkeeper) turn() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	leads := false
	for _, l := range b.leading {
		leads = leads || l
	}
	now := b.now()
	switch {
	case !leads:
		b.due = time.Time{}
		b.meter.ForgetBooks()
	case b.due.IsZero():
		b.due = now.Add(min(b.every, booksSettle))
	case !now.Before(b.due):
		b.due = now.Add(b.every)
		return true
	}
	return false
}

// tick reads the books if it is time. If they can't be read, that is tried
// again soon, and what was read before stays exported: its time says how old it
// is.
func (b *bookkeeper) tick(ctx context.Context) error {
	if !b.turn() {
		return nil
	}
	books, err := b.reconcile(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.due = b.now().Add(min(b.every, booksSettle))
		return err
	}
	b.meter.Books(len(books.Discrepancies), books.AsOf)
	if len(books.Discrepancies) > 0 { // waiting cards and money have their own alarms
		b.log.ErrorContext(ctx, "the books do not agree: run 'cardmint reconcile'", "doubts", len(books.Discrepancies))
	}
	return nil
}

// addBooks adds the loop that reads the books, if the plan has a bookkeeper.
func (g *globals) addBooks(w *wired, v *vault.Vault, dbs stores, p plan) {
	b := p.books
	if b == nil {
		return
	}
	b.log = g.log.With("loop", "books")
	service := operator.New(dbs.worker, p.rates, b.log)
	b.reconcile = func(ctx context.Context) (operator.Books, error) {
		books, err := service.Reconcile(ctx, operator.Audit{Vault: v})
		return withTokens(ctx, w.accounts, books, err)
	}
	w.add(loop{name: "books", every: min(b.every, booksEvery), tick: b.tick})
}
