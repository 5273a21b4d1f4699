package rate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Book stores accepted and parked rates for other processes, for the next start
// and for operators. Every method is harmless when it runs twice. Times are by
// this process's clock.
type Book interface {
	// AcceptedRates returns the rates of currencies that any process or
	// operator accepted within a duration, and the last one of each currency at
	// any age, oldest first.
	AcceptedRates(ctx context.Context, currencies []string, within time.Duration) ([]card.AcceptedRate, error)
	// InsertAcceptedRates stores accepted rates. It may delete rates older than
	// keep, except the last one of each currency.
	InsertAcceptedRates(ctx context.Context, rates []card.AcceptedRate, keep time.Duration) error
	// SaveParkedRates replaces the parked rates of a process.
	SaveParkedRates(ctx context.Context, process string, rates []card.ParkedRate) error
}

// bookTimeout limits a call of the Book, so that the next Follow soon retries.
const bookTimeout = 3 * time.Second

// UseBook makes l compare rates with those in a book, and store its own there
// under the name of this process. It must be called before the first Tick.
// Without a book l compares with its own rates only.
//
// No rate is accepted before the book was read once. After that, l continues
// with the last state while the book can't be reached.
func (l *Live) UseBook(book Book, process string) {
	l.book, l.process = book, process
	for coin, s := range l.coins {
		s.unread = errors.New("it was not read yet")
		l.coins[coin] = s
	}
}

// Follow reads the book, and stores new accepted and parked rates. After the
// first read, and after an operator has accepted a rate, it judges the latest
// quotes again, so that orders need not wait for the next Tick. Rates that
// can't be stored are stored by the next Follow.
func (l *Live) Follow(ctx context.Context) error {
	if l.book == nil {
		return nil
	}
	news, err := l.read(ctx)
	if err != nil {
		return err
	}
	l.judgeAgain(news)
	return l.write(ctx)
}

// judgeAgain judges coins by the quotes of the latest Tick. It does not count
// as another Tick.
func (l *Live) judgeAgain(coins []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, coin := range coins {
		latest, there := l.judged[coin]
		if !there {
			continue
		}
		before := latest.before
		before.past, before.unread = l.coins[coin].past, nil
		if after := judge(coin, latest.quotes, before, l.cfg.Now(), l.cfg); after.why == nil ||
			l.coins[coin].last.USD.Units == 0 {
			l.adopt(coin, after)
		}
	}
}

// read reads the book, and returns the coins that must be judged again: all
// coins after the first read, and those whose rate an operator has accepted.
func (l *Live) read(ctx context.Context) (news []string, err error) {
	if l.book == nil {
		return nil, nil
	}
	l.booking.Lock()
	defer l.booking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, bookTimeout)
	defer cancel()
	found, err := l.book.AcceptedRates(ctx, slices.Clone(l.cfg.Coins), window)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, coin := range l.cfg.Coins {
		s := l.coins[coin]
		if err != nil {
			if s.unread != nil {
				s.unread = err
			}
			l.coins[coin] = s
			continue
		}
		var stored past
		for _, r := range found {
			if r.Currency == coin {
				stored = append(stored, r)
			}
		}
		decision, decided := stored.decision()
		known, _ := s.past.decision()
		if s.unread != nil || decided && decision.ID != known.ID {
			news = append(news, coin)
		}
		if decided && s.unread == nil && decision.ID != known.ID {
			l.log.InfoContext(ctx, "rate accepted by an operator", "currency", coin, "usd", decision.USD, "operator",
				decision.By, "note", decision.Note)
		}
		s.past, s.unread = stored.merge(l.unstored[coin]).recent(l.cfg.Now()), nil
		l.coins[coin] = s
	}
	if err != nil {
		return nil, fmt.Errorf("read accepted rates: %w", err)
	}
	return news, nil
}

// write stores accepted and parked rates.
func (l *Live) write(ctx context.Context) error {
	if l.book == nil {
		return nil
	}
	l.booking.Lock()
	defer l.booking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, bookTimeout)
	defer cancel()
	accepted, parked := l.toStore()
	if len(accepted) > 0 {
		if err := l.book.InsertAcceptedRates(ctx, accepted, window); err != nil {
			return fmt.Errorf("store accepted rates: %w", err)
		}
		l.mu.Lock()
		for coin, rates := range l.unstored {
			l.unstored[coin] = slices.DeleteFunc(rates, func(r card.AcceptedRate) bool {
				return slices.ContainsFunc(accepted, func(stored card.AcceptedRate) bool { return stored.ID == r.ID })
			})
		}
		l.mu.Unlock()
	}
	if !slices.Equal(parked, l.stored) {
		if err := l.book.SaveParkedRates(ctx, l.process, parked); err != nil {
			return fmt.Errorf("store parked rates: %w", err)
		}
		l.stored = parked
	}
	return nil
}

// toStore returns the accepted rates that are not stored yet, and all parked
// rates.
func (l *Live) toStore() (accepted []card.AcceptedRate, waiting []card.ParkedRate) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, coin := range l.cfg.Coins {
		accepted = append(accepted, l.unstored[coin]...)
		if p := l.coins[coin].parked; p != nil {
			waiting = append(waiting,
				card.ParkedRate{Currency: coin, USD: p.USD, Source: p.Source, Why: p.why, Since: p.since, Until: p.until,
					By: l.process})
		}
	}
	return accepted, waiting
}

// adopt sets the state of a coin, and queues a newly accepted rate for the
// book. The caller holds mu.
func (l *Live) adopt(coin string, after coinState) {
	if n := len(after.past); n > 0 && after.past[n-1].ID == uuid.Nil {
		r := &after.past[n-1]
		r.ID, r.By = uuid.Must(uuid.NewV7()), l.process
		if l.book != nil {
			l.unstored[coin] = append(l.unstored[coin], *r).recent(l.cfg.Now())
		}
	}
	l.coins[coin] = after
}
