package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// The sums of the books are stored by day (migration 00011). A reading uses the
// stored sums of a day unless a change of the day was recorded, and reads the
// days that are too recent to be stored. It reads everything in pages of up to
// booksPage rows, in one snapshot.
const (
	booksPage = 10_000
	// A day is stored no sooner than this after its end. Triggers record
	// changes of rows that are older than 24 hours: a transaction that saw a
	// younger row has ended six hours later.
	keptAfter = 30 * time.Hour
	// Books with more doubted cards are not stored: checking them again would
	// take longer than a full reading.
	mostDoubted = 10_000
)

// SQLite cannot sum integers beyond 64 bits, so the high and the low 32 bits of
// amounts are summed separately.
const (
	high = " >> 32"
	low  = " & 4294967295"
)

// sumOf returns a column that sums an amount over the rows that meet a
// condition; 0 for none. totals parses it.
func sumOf(amount, condition string) string {
	part := func(bits string) string {
		return "CAST(COALESCE(SUM(CASE WHEN " + condition + " THEN " + amount + bits + " END), 0) AS TEXT)"
	}
	return part(high) + " || ' ' || " + part(low)
}

// totals parses the columns of sumOf, separated by spaces.
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

// notSum returns the condition that an amount differs from the sum of a query's
// column amount.
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
	keptUntil int64 // before this reading
	keepUntil int64 // after this reading; later days are read again next time
	young     int64 // days from here on are not stored
	from      int64 // days from here on are read; earlier ones only if they changed
	kept      map[dayOf]daySums
	notes     notes

	found   map[dayOf]daySums // by day
	again   map[dayID]bool    // earlier days that were read
	wrong   map[dayID]bool    // stored days whose rows no longer match
	doubts  doubts
	feeds   []feed // checked for gaps so far
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
	return operator.Reading{
		Books: operator.Books{AsOf: r.now, Coins: coins, Discrepancies: r.doubts.all(), Waiting: r.waiting},
		From:  firstOf(r.from), Others: r.others(), Recheck: r.doubts.ids(), State: r,
	}, nil
}

// begin reads the time and the state of the stored books.
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
	r.young = min(r.keptUntil, r.keepUntil) // the clock may have been set back
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

// coins sums the stored days and the days that were read.
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

// changedCards returns the cards of stored days that may have changed.
func (r *reading) others() []uuid.UUID {
	if r.full {
		return nil
	}
	return slices.Collect(maps.Keys(r.notes.cards))
}

// The parts of the books.
const (
	ofCards     = "cards"
	ofTransfers = "transfers"
)

// dayID is a day of a part; dayOf is one currency of it. Days are in UTC,
// counted from 1970.
type (
	dayID struct {
		part string
		day  int64
	}
	dayOf struct {
		dayID
		currency string
	}
)

func (d dayID) String() string { return time.Unix(d.day*86400, 0).UTC().Format(time.DateOnly) }

// daySums is the sum of the rows of one day and currency.
type daySums struct {
	rows    int64
	sums    []card.Total // in the order of totalsOf
	doubted bool         // do not use
}

func (s daySums) text() string {
	texts := make([]string, len(s.sums))
	for i, total := range s.sums {
		texts[i] = total.String()
	}
	return strings.Join(texts, " ")
}

// equal compares rows and sums.
func (s daySums) equal(other daySums) bool {
	return s.rows == other.rows && slices.EqualFunc(s.sums, other.sums, card.Total.Equal)
}

// coinSums is the books of a coin, with the numbers of cards as totals.
type coinSums struct {
	operator.CoinBooks
	paid, issued, late card.Total
}

// totalsOf returns the fields that the sums of a part belong to, in the stored
// order. A stored day with another number of sums is not used.
func totalsOf(part string, b *coinSums) []*card.Total {
	if part == ofTransfers {
		return []*card.Total{&b.Counted, &b.Unattributed, &b.Returned, &b.Lost}
	}
	return []*card.Total{&b.Made, &b.Open, &b.Held, &b.Surplus, &b.Refunded, &b.Lost, &b.WrittenOff, &b.paid, &b.issued,
		&b.late, &b.SoldCents}
}

// sumsOf returns the columns that sum a part, in the order of totalsOf.
func sumsOf(part string) string {
	const one = "CAST(1 AS BIGINT)"
	columns := []string{sumOf("c.credit_paid", "c.status = 'generated'"),
		sumOf("c.credit_paid", "c.status <> 'generated'"), sumOf("c.credit_held", "TRUE"),
		sumOf("c.credit_surplus", "TRUE"), sumOf("c.credit_refunded", "TRUE"), sumOf("c.credit_lost", "TRUE"),
		sumOf("c.credit_written_off", "TRUE"),
		sumOf(one, "c.payment_state IN ('paid', 'reversed')"), sumOf(one, "c.status = 'generated'"),
		sumOf(one, "c.payment_state = 'late'"), sumOf("c.usd_cents", "c.status = 'generated'")}
	if part == ofTransfers {
		// Scalar subqueries, as in isStray.
		const refunded = "(SELECT a.kind FROM attributions a WHERE a.currency = t.currency AND a.txid = t.txid AND a.output = t.output) = 'refund'"
		columns = []string{sumOf("t.amount", "t.counted"),
			sumOf("t.amount", "t.counted AND "+isStray+" AND NOT "+isAttributed), sumOf("t.amount", "t.counted AND "+refunded),
			sumOf("t.amount", "NOT t.counted AND "+refunded)}
	}
	return strings.Join(columns, " || ' ' || ")
}

const dayLasts = int64(24 * time.Hour / time.Millisecond)

// dayAt returns the day of a time in Unix milliseconds.
func dayAt(ms int64) int64 {
	if ms < 0 {
		return 0 // one day for all of them
	}
	return ms / dayLasts
}

// dayOfCard returns the day of a card. A version 7 uuid begins with the
// milliseconds; any other uuid has an arbitrary day.
func dayOfCard(id uuid.UUID) int64 { return dayAt(int64(binary.BigEndian.Uint64(id[:8]) >> 16)) }

// firstOf returns the lowest uuid that a card of a day can have.
func firstOf(day int64) (id uuid.UUID) {
	ms := day * dayLasts
	if ms >= 1<<48 {
		return uuid.Max
	}
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16)
	return id
}

// readKept reads the stored sums.
func (r *reading) readKept(ctx context.Context) error {
	r.kept = map[dayOf]daySums{}
	for at := (dayOf{}); ; {
		var found []struct {
			Part     string `db:"part"`
			Day      int64  `db:"day"`
			Currency string `db:"currency"`
			Rows     int64  `db:"rows"`
			Sums     string `db:"sums"`
			Doubted  bool   `db:"doubted"`
		}
		err := r.list(ctx, &found, "select kept books", `SELECT part, day, currency, rows, sums, doubted FROM books_days
			WHERE (part, day, currency) > (?, ?, ?) ORDER BY part, day, currency LIMIT ?`, at.part, at.day, at.currency, booksPage)
		if err != nil {
			return err
		}
		for _, f := range found {
			at = dayOf{dayID{f.Part, f.Day}, f.Currency}
			sums := daySums{rows: f.Rows, doubted: f.Doubted}
			for _, text := range strings.Fields(f.Sums) {
				total, err := card.ParseTotal(text)
				if err != nil {
					sums.doubted = true
				}
				sums.sums = append(sums.sums, total)
			}
			if len(sums.sums) != len(totalsOf(at.part, &coinSums{})) {
				sums.doubted = true
			}
			r.kept[at] = sums
			if sums.doubted {
				r.readAgain(at.dayID)
			}
		}
		if len(found) < booksPage {
			return nil
		}
	}
}

// readAgain marks an earlier day to be read.
func (r *reading) readAgain(d dayID) {
	if d.day < r.from {
		r.again[d] = true
	}
}

// readDays reads the recent and the changed days. Cards come first: they may
// have taken the addresses of transfers of other days.
func (r *reading) readDays(ctx context.Context) error {
	for _, p := range []struct {
		part string
		day  func(context.Context, int64) error
		next func(context.Context, int64) (int64, error)
	}{{ofCards, r.readCards, r.nextCards}, {ofTransfers, r.readTransfers, r.nextTransfers}} {
		days := []int64{}
		for d := range r.again {
			if d.part == p.part {
				days = append(days, d.day)
			}
		}
		slices.Sort(days)
		for _, day := range days {
			if err := p.day(ctx, day); err != nil {
				return err
			}
		}
		for day := r.from; ; day++ {
			var err error
			if day, err = p.next(ctx, day); errors.Is(err, card.ErrNoRow) {
				break
			} else if err != nil {
				return err
			}
			if err := p.day(ctx, day); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextCards returns the first day with cards that is not before a day. The
// error is card.ErrNoRow if there is none.
func (r *reading) nextCards(ctx context.Context, from int64) (int64, error) {
	var first uuid.UUID
	err := r.get(ctx, &first, "select first card", "SELECT uuid FROM cards WHERE uuid >= ? ORDER BY uuid LIMIT 1",
		firstOf(from))
	return dayOfCard(first), err
}

// nextTransfers is nextCards for transfers.
func (r *reading) nextTransfers(ctx context.Context, from int64) (int64, error) {
	var first int64
	err := r.get(ctx, &first, "select first transfer",
		"SELECT first_seen_at FROM transfers WHERE first_seen_at >= ? ORDER BY first_seen_at LIMIT 1", seenFrom(from))
	return dayAt(first), err
}

// seenFrom returns the earliest time when a transfer of a day can have been
// seen.
func seenFrom(day int64) int64 {
	if day == 0 {
		return math.MinInt64
	}
	return day * dayLasts
}

// readCards reads the cards of a day.
func (r *reading) readCards(ctx context.Context, day int64) error {
	const within = " c.uuid >= ? AND c.uuid < ? "
	for from, end := firstOf(day), firstOf(day+1); from != end; {
		next := end
		err := r.get(ctx, &next, "select piece of cards",
			"SELECT uuid FROM cards c WHERE"+within+"ORDER BY uuid LIMIT 1 OFFSET ?", from, end, booksPage)
		if err != nil && !errors.Is(err, card.ErrNoRow) {
			return err
		}
		n, err := r.addUp(ctx, dayID{ofCards, day}, "cards c WHERE"+within, from, next)
		if err != nil {
			return err
		}
		if day >= r.from { // of earlier days, only changed cards are checked
			if err := r.doubtPiece(ctx, day, from, next); err != nil {
				return err
			}
		}
		r.read.Cards += n
		r.tell(day)
		from = next
	}
	return nil
}

// seen is the position of a transfer in the order of transfers.
type seen struct {
	At       int64  `db:"first_seen_at"`
	Currency string `db:"currency"`
	TxID     string `db:"txid"`
	Output   int64  `db:"output"`
}

// readTransfers reads the transfers of a day.
func (r *reading) readTransfers(ctx context.Context, day int64) error {
	const key = "(t.first_seen_at, t.currency, t.txid, t.output)"
	const within = " t.first_seen_at >= ? AND t.first_seen_at <= ? AND " + key + " >= (?, ?, ?, ?) AND " + key +
		" < (?, ?, ?, ?) "
	for from, end := (seen{At: seenFrom(day), Output: math.MinInt64}),
		(seen{At: seenFrom(day + 1), Output: math.MinInt64}); from != end; {
		args := func(to seen) []any {
			return []any{from.At, to.At, from.At, from.Currency, from.TxID, from.Output, to.At, to.Currency, to.TxID, to.Output}
		}
		next := end
		err := r.get(ctx, &next, "select piece of transfers",
			"SELECT first_seen_at, currency, txid, output FROM transfers t WHERE"+within+
				"ORDER BY first_seen_at, currency, txid, output LIMIT 1 OFFSET ?", append(args(end), booksPage)...)
		if err != nil && !errors.Is(err, card.ErrNoRow) {
			return err
		}
		n, err := r.addUp(ctx, dayID{ofTransfers, day}, "transfers t WHERE"+within, args(next)...)
		if err != nil {
			return err
		}
		if day >= r.from && !r.full { // changes of recent days are not recorded, and their cards may be older
			if err := r.noteOwners(ctx, "transfers t WHERE"+within, args(next)...); err != nil {
				return err
			}
		}
		r.read.Transfers += n
		r.tell(day)
		from = next
	}
	return nil
}

// addUp adds a page of rows to the sums of a day, and returns its number of
// rows.
func (r *reading) addUp(ctx context.Context, d dayID, from string, args ...any) (n int64, err error) {
	var found []struct {
		Currency string `db:"currency"`
		Rows     int64  `db:"n"`
		Sums     string `db:"sums"`
	}
	err = r.list(ctx, &found, "add up "+d.part,
		"SELECT currency, COUNT(*) AS n, "+sumsOf(d.part)+" AS sums FROM "+from+"GROUP BY currency", args...)
	if err != nil {
		return 0, err
	}
	for _, f := range found {
		sums, err := totals(f.Sums)
		if err != nil {
			return 0, fmt.Errorf("add up %s: %w", d.part, err)
		}
		of := dayOf{d, f.Currency}
		so, before := r.found[of]
		if before {
			for i := range sums {
				sums[i] = sums[i].Add(so.sums[i])
			}
		}
		r.found[of] = daySums{rows: so.rows + f.Rows, sums: sums}
		n += f.Rows
	}
	return n, nil
}

func (r *reading) tell(day int64) {
	r.read.Day = time.UnixMilli(day * dayLasts).UTC()
	r.progress(r.read)
}
