package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/cardmint/cardmint/internal/card"
)

// Rates are stored by the database's clock, which all processes share, and
// returned by the clock of this process.

// newerRate is the condition that a newer rate of the currency of r was
// accepted.
const newerRate = "EXISTS (SELECT 1 FROM accepted_rates n WHERE n.currency = r.currency AND (n.accepted_at, n.id) > (r.accepted_at, r.id))"

type acceptedRateRow struct {
	ID       uuid.UUID `db:"id"`
	Currency string    `db:"currency"`
	USD      int64     `db:"usd"`
	Source   string    `db:"source"`
	By       string    `db:"accepted_by"`
	Note     string    `db:"note"`
	Age      int64     `db:"age"`
}

// AcceptedRates returns the rates of currencies that were accepted within a
// duration, and the last rate of each currency regardless of its age, oldest
// first.
func (s *Store) AcceptedRates(ctx context.Context, currencies []string, within time.Duration) ([]card.AcceptedRate,
	error) {
	now := s.dialect.now
	query, args, err := sqlx.In(`SELECT r.id, r.currency, r.usd, r.source, r.accepted_by, COALESCE(r.note, '') AS note, `+now+` - r.accepted_at AS age
		FROM accepted_rates r WHERE r.currency IN (?) AND (r.accepted_at >= `+now+` - ? OR NOT `+newerRate+`) ORDER BY r.accepted_at, r.id`,
		currencies, within.Milliseconds())
	if err != nil {
		return nil, err
	}
	var found []acceptedRateRow
	if err := s.list(ctx, s.r, &found, "select accepted rates", query, args...); err != nil {
		return nil, err
	}
	read := time.Now()
	all := make([]card.AcceptedRate, len(found))
	for i, r := range found {
		all[i] = card.AcceptedRate{ID: r.ID, Currency: r.Currency, USD: usdPerCoin(r.USD), Source: r.Source,
			At: ago(read, r.Age), By: r.By, Note: r.Note}
	}
	return all, nil
}

// InsertAcceptedRates stores accepted rates. It deletes older rates of their
// currencies after keep, except the last of each and rates that operators
// accepted. Inserting the same rates again changes nothing.
func (s *Store) InsertAcceptedRates(ctx context.Context, rates []card.AcceptedRate, keep time.Duration) error {
	if len(rates) == 0 {
		return nil
	}
	now, begun := s.dialect.now, time.Now()
	var currencies []string
	err := inChunks(rates, func(some []card.AcceptedRate) error {
		var args []any
		for _, r := range some {
			currencies = append(currencies, r.Currency)
			args = append(args, r.ID, r.Currency, r.USD.Units, r.Source, max(begun.Sub(r.At), 0).Milliseconds(), r.By,
				nullString(r.Note))
		}
		_, err := s.exec(ctx, s.w, "insert accepted rates",
			"INSERT INTO accepted_rates (id, currency, usd, source, accepted_at, accepted_by, note) VALUES "+
				rows("(?, ?, ?, ?, "+now+" - ?, ?, ?)", len(some))+" ON CONFLICT (id) DO NOTHING", args...)
		return err
	})
	if err != nil {
		return err
	}
	query, args, err := sqlx.In(
		"DELETE FROM accepted_rates AS r WHERE r.currency IN (?) AND r.note IS NULL AND r.accepted_at < "+now+" - ? AND "+
			newerRate,
		currencies, keep.Milliseconds())
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, s.w, "delete old rates", query, args...)
	return err
}

type parkedRateRow struct {
	Currency string `db:"currency"`
	Process  string `db:"process"`
	USD      int64  `db:"usd"`
	Source   string `db:"source"`
	Reason   string `db:"reason"`
	Age      int64  `db:"age"`
	Left     int64  `db:"left_ms"`
}

// ParkedRates returns the rates that wait for an operator, as each process sees
// them, last seen first.
func (s *Store) ParkedRates(ctx context.Context) ([]card.ParkedRate, error) {
	now := s.dialect.now
	var found []parkedRateRow
	err := s.list(ctx, s.r, &found, "select parked rates",
		"SELECT currency, process, usd, source, reason, "+now+" - since AS age, valid_until - "+now+
			" AS left_ms FROM parked_rates WHERE valid_until >= "+now+" ORDER BY valid_until DESC, currency, process")
	read := time.Now()
	all := make([]card.ParkedRate, len(found))
	for i, r := range found {
		all[i] = card.ParkedRate{Currency: r.Currency, USD: usdPerCoin(r.USD), Source: r.Source, Why: r.Reason,
			Since: ago(read, r.Age), Until: ago(read, -r.Left), By: r.Process}
	}
	return all, err
}

// SaveParkedRates replaces the parked rates of a process.
func (s *Store) SaveParkedRates(ctx context.Context, process string, rates []card.ParkedRate) error {
	now, begun := s.dialect.now, time.Now()
	return s.inTx(ctx, func(t *tx) error {
		if _, err := s.exec(ctx, t.t, "delete parked rates",
			"DELETE FROM parked_rates WHERE process = ? OR valid_until < "+now, process); err != nil {
			return err
		}
		return insertAll(ctx, t, "insert parked rates",
			"parked_rates (currency, process, usd, source, reason, since, valid_until)",
			[]string{"TEXT", "TEXT", "BIGINT", "TEXT", "TEXT", "BIGINT", "BIGINT"},
			"column1, column2, column3, column4, column5, "+now+" - column6, "+now+" + column7", "", rates,
			func(r card.ParkedRate) []any {
				return []any{r.Currency, process, r.USD.Units, r.Source, r.Why, max(begun.Sub(r.Since), 0).Milliseconds(),
					max(r.Until.Sub(begun), 0).Milliseconds()}
			})
	})
}

func usdPerCoin(units int64) card.Decimal { return card.Decimal{Units: units, Scale: card.RateScale} }

// ago returns the time ms milliseconds ago, without a monotonic clock reading,
// which would not survive a restart.
func ago(now time.Time, ms int64) time.Time {
	return now.Add(-time.Duration(ms) * time.Millisecond).UTC().Round(0)
}
