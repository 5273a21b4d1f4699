package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/metrics"
	"github.com/cardmint/cardmint/internal/operator"
)

const (
	booksEvery = 10 * time.Second // longest interval between two checks whether the books are due
	booksDelay = time.Minute      // before the first reconciliation, so that it does not slow the start
)

// bookkeeper reconciles the books periodically and exports the result as
// metrics. Only workers that watch a chain do so. When a worker stops watching,
// it drops its result, because another worker exports a newer one.
type bookkeeper struct {
	every     time.Duration
	meter     *metrics.Metrics
	log       *slog.Logger
	now       func() time.Time
	reconcile func(context.Context) (operator.Books, error)

	mu      sync.Mutex
	leading map[string]bool // by coin
	due     time.Time       // zero while this process watches no chain
}

// newBookkeeper returns a bookkeeper that reconciles once per interval, or nil
// if every is 0.
func newBookkeeper(every time.Duration, meter *metrics.Metrics) *bookkeeper {
	if every == 0 {
		return nil
	}
	return &bookkeeper{every: every, meter: meter, now: time.Now, leading: map[string]bool{}}
}

// setLeading records whether this process watches the chain of a coin. A nil
// bookkeeper does nothing.
func (b *bookkeeper) setLeading(coin string, leads bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leading[coin] = leads
}

// isDue reports whether to reconcile now, and schedules the next time.
func (b *bookkeeper) isDue() bool {
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
		b.due = now.Add(min(b.every, booksDelay))
	case !now.Before(b.due):
		b.due = now.Add(b.every)
		return true
	}
	return false
}

// tick reconciles if due. If that fails, it retries soon and keeps exporting
// the last result with its time.
func (b *bookkeeper) tick(ctx context.Context) error {
	if !b.isDue() {
		return nil
	}
	books, err := b.reconcile(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.due = b.now().Add(min(b.every, booksDelay))
		return err
	}
	b.meter.Books(len(books.Discrepancies), books.AsOf)
	if len(books.Discrepancies) > 0 { // waiting cards and money have their own alarms
		b.log.ErrorContext(ctx, "the books do not agree: run 'cardmint reconcile'", "doubts", len(books.Discrepancies))
	}
	return nil
}

// addBooks adds the loop of the bookkeeper.
func (p *process) addBooks() {
	b := p.books
	if b == nil {
		return
	}
	b.log = p.Log.With("loop", "books")
	service := operator.New(p.dbs.worker, p.rates, b.log)
	b.reconcile = func(ctx context.Context) (operator.Books, error) {
		return Reconcile(ctx, service, p.accounts, operator.Audit{Vault: p.vault})
	}
	p.add(loop{name: "books", every: min(b.every, booksEvery), tick: b.tick})
}

// maxChangedTokens limits how many changed tokens are listed.
const maxChangedTokens = 20

// Reconcile reads the books, and adds a doubt for each token whose row was
// changed without the keys.
func Reconcile(ctx context.Context, o *operator.Service, accounts *account.Service, audit operator.Audit) (
	operator.Books, error) {
	books, err := o.Reconcile(ctx, audit)
	if err != nil {
		return books, err
	}
	changed, err := accounts.ChangedTokens(ctx)
	if err != nil {
		return books, err
	}
	for _, t := range changed[:min(len(changed), maxChangedTokens)] {
		text := "the token's row was changed without the keys, and it is refused: revoke it"
		if errors.Is(t.Err, card.ErrUnavailable) {
			text = "the token's seal can't be checked: the key file does not have the key"
		}
		books.Discrepancies = append(books.Discrepancies, operator.Discrepancy{ID: t.ID, Text: text})
	}
	return books, nil
}
