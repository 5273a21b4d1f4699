package store

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// The books are kept by the day (migration 00011). A reading believes the kept
// sums of a day unless something of it was noted since, and reads the days that
// are too young to be kept. All is read in pieces of at most booksPage rows, as
// of one moment.
const (
	booksPage = 10_000
	// A day is kept no sooner than this after its end. Triggers note what
	// changes when it is older than 24 hours: a transaction that found it
	// younger has ended six hours later.
	keptAfter = 30 * time.Hour
	// Books that doubt more cards are not kept: looking at those again would
	// take longer than a full reading.
	mostDoubted = 10_000
)

// SQLite can't add up integers beyond 64 bits, so the high and the low 32 bits
// of amounts are added up apart.
const (
	high = " >> 32"
	low  = " & 4294967295"
)

// sumOf returns a column that adds up an amount, 0 for none, in the rows for
// which a condition holds; totals reads it.
func sumOf(amount, condition string) string {
	part := func(bits string) string {
		return "CAST(COALESCE(SUM(CASE WHEN " + condition + " THEN " + amount + bits + " END), 0) AS TEXT)"
	}
	return part(high) + " || ' ' || " + part(low)
}

// totals reads columns of sumOf with spaces between.
func totals(text string) ([]card.Total, error) {
	fields := strings.Fields(text)
	all := make([]card.Total, len(fields)/2)
	for i := range all {
		var total, rest big.Int
		if _, err := fmt.Sscan(fields[2*i]+" "+fields[2*i+1], &total, &rest); err != nil {
			return nil, err
		}
		total.Add(total.Lsh(&total, 32), &rest)
		var err error
		if all[i], err = card.ParseTotal(total.String()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// notSum returns a condition: that an amount is not what the amounts of a
// query, in its column amount, add up to.
func notSum(amount, query string) string {
	sum := func(bits string) string { return "CAST(COALESCE(SUM(x.amount" + bits + "), 0) AS BIGINT)" }
	return "(SELECT " + sum(high) + " + (" + sum(low) + high + ") <> (" + amount + high + ") OR (" + sum(low) + low +
		") <> (" + amount + low + ") FROM (" + query + ") x)"
}

// reading is a reading of the books.
type reading struct {
	t        *tx
	full     bool
	progress func(operator.Progress)
	read     operator.Progress

	version   int64
	now       time.Time
	keptUntil int64 // as it was
	keepUntil int64 // as it will be; younger days are read again next time
	young     int64 // all days from here on are not kept
	from      int64 // all days from here on are read, and those before that are to be read again
	kept      map[dayOf]daySums
	notes     notes

	found   map[dayOf]daySums // of the days that were read
	again   map[dayID]bool    // days before from that were read
	wrong   map[dayID]bool    // days that were kept, and are not as they were kept
	doubts  doubts
	feeds   []feed // how far they have been seen to have no gap
	waiting []operator.Waiting

	unconfirmed map[string]card.Total // by currency
}

// ReadBooks implements operator.Store.
func (s *Store) ReadBooks(ctx context.Context, full bool, progress func(operator.Progress)) (operator.Reading, error) {
	var r *reading
	err := s.inSnapshot(ctx, func(t *tx) error {
		r = &reading{t: t, full: full, progress: progress, found: map[dayOf]daySums{}, again: map[dayID]bool{},
			wrong: map[dayID]bool{}, doubts: newDoubts()}
		for _, step := range []func(context.Context) error{
			r.begin, r.readNotes, r.readKept, r.readDays, r.doubtCards, r.doubtDays, r.doubtOthers, r.readWaiting,
			r.readUnconfirmed} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return operator.Reading{}, err
	}
	coins, err := r.coins()
	if err != nil {
		return operator.Reading{}, err
	}
	return operator.Reading{Books: operator.Books{AsOf: r.now, Coins: coins, Doubts: r.doubts.all(), Waiting: r.waiting},
		From: firstOf(r.from), Others: r.others(), Doubted: r.doubts.ids(), State: r}, nil
}

// begin reads the moment, and what was kept before.
func (r *reading) begin(ctx context.Context) error {
	var row struct {
		Version   int64 `db:"version"`
		KeptUntil int64 `db:"kept_until"`
		Now       int64 `db:"now"`
	}
	if err := r.get(ctx, &row, "select books",
		"SELECT version, kept_until, "+r.t.s.dialect.now+" AS now FROM books"); err != nil {
		return err
	}
	r.version, r.now, r.keptUntil = row.Version, fromMillis(row.Now), row.KeptUntil
	r.keepUntil = dayAt(r.now.Add(-keptAfter).UnixMilli())
	r.young = min(r.keptUntil, r.keepUntil) // the clock may have gone back
	if !r.full {
		r.from = r.young
	}
	return nil
}

func (r *reading) get(ctx context.Context, dest any, operation, query string, args ...any) error {
	return r.t.s.get(ctx, r.t.t, dest, operation, query, args...)
}

func (r *reading) list(ctx context.Context, dest any, operation, query string, args ...any) error {
	return r.t.s.list(ctx, r.t.t, dest, operation, query, args...)
}

// coins adds up the days, those that were read and those that were not.
func (r *reading) coins() ([]operator.CoinBooks, error) {
	coins := map[string]*coinSums{}
	add := func(of dayOf, s daySums) {
		if coins[of.currency] == nil {
			coins[of.currency] = &coinSums{
				CoinBooks: operator.CoinBooks{Currency: of.currency, Unconfirmed: r.unconfirmed[of.currency]}}
		}
		for i, total := range totalsOf(of.part, coins[of.currency]) {
			*total = total.Add(s.sums[i])
		}
	}
	for of, sums := range r.kept {
		if !r.wasRead(of.dayID) {
			add(of, sums)
		}
	}
	for of, sums := range r.found {
		add(of, sums)
	}
	all := make([]operator.CoinBooks, 0, len(coins))
	for _, currency := range slices.Sorted(maps.Keys(coins)) {
		b := coins[currency]
		for _, n := range []struct {
			to   *int64
			from card.Total
		}{{&b.Paid, b.paid}, {&b.Issued, b.issued}, {&b.Late, b.late}} {
			var err error
			if *n.to, err = strconv.ParseInt(n.from.String(), 10, 64); err != nil {
				return nil, fmt.Errorf("add up the number of cards: %w", err)
			}
		}
		all = append(all, b.CoinBooks)
	}
	return all, nil
}

// wasRead reports whether the rows of a day were read.
func (r *reading) wasRead(d dayID) bool { return d.day >= r.from || r.again[d] }

// others returns the cards before the days that were read of which something
// may have changed.
func (r *reading) others() []uuid.UUID {
	if r.full {
		return nil
	}
	return slices.Collect(maps.Keys(r.notes.cards))
}
