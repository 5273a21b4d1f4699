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

// Book keeps accepted and parked rates where other processes, the next start
// and operators find them. Calling any of its methods twice is harmless. Times
// are those of this process's clock.
type Book interface {
	// AcceptedRates returns the rates of currencies that were accepted within
	// the last so long, by any process or operator, and the last one of each
	// currency however old it is, oldest first.
	AcceptedRates(ctx context.Context, currencies []string, within time.Duration) ([]card.AcceptedRate, error)
	// InsertAcceptedRates stores accepted rates. It may delete those that are
	// older than keep, except the last one of each currency.
	InsertAcceptedRates(ctx context.Context, rates []card.AcceptedRate, keep time.Duration) error
	// SaveParkedRates replaces what a process has parked.
	SaveParkedRates(ctx context.Context, process string, rates []card.ParkedRate) error
}

// bookTimeout limits a call of the Book, so that Follow soon tries again.
const bookTimeout = 3 * time.Second

// UseBook has Follow compare rates with those in a book, and keep those of l
// there, under the name of this process. It must be called before the first
// Tick. Without a book l knows only what it accepted itself.
//
// Until the book has been read once, no rate is accepted. After that, l goes on
// with what it knows whenever the book is out of reach.
func (l *Live) UseBook(book Book, process string) {
	l.book, l.process = book, process
	for coin, s := range l.coins {
		s.unread = errors.New("it was not read yet")
		l.coins[coin] = s
	}
}

// Follow reads the book, and stores what was accepted and parked since. If an
// operator has accepted a rate, or the book was read for the first time, it
// judges again what the sources said last, so that nobody waits for the next
// Tick. What could not be stored is stored by the next Follow; nothing waits
// for that.
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

// judgeAgain judges coins by what the sources said in the latest Tick. It does
// not count as another Tick.
func (l *Live) judgeAgain(coins []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, coin := range coins {
		heard, there := l.heard[coin]
		if !there {
			continue
		}
		before := heard.before
		before.past, before.unread = l.coins[coin].past, nil
		if after := judge(coin, heard.quotes, before, l.cfg.Now(), l.cfg); after.why == nil ||
			l.coins[coin].last.USD.Units == 0 {
			l.adopt(coin, after)
		}
	}
}

// read reads the book, and returns the coins of which it says something that
// changes what was judged: it was read for the first time, or an operator has
// accepted a rate.
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
			l.log.InfoContext(ctx, "an operator has accepted a rate", "currency", coin, "usd", decision.USD, "operator",
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

// write stores what was accepted and what is parked.
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

// toStore returns what is to be stored: rates that were accepted since, and
// everything that is parked.
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

// adopt makes after the standing of a coin, and notes a rate that was just
// accepted for the book. The caller holds mu.
func (l *Live) adopt(coin string, after standing) {
	if n := len(after.past); n > 0 && after.past[n-1].ID == uuid.Nil {
		r := &after.past[n-1]
		r.ID, r.By = uuid.Must(uuid.NewV7()), l.process
		if l.book != nil {
			l.unstored[coin] = past(append(l.unstored[coin], *r)).recent(l.cfg.Now())
		}
	}
	l.coins[coin] = after
}
