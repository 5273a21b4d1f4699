package store

import (
	"fmt"
	"math"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
)

// The bounds of stored numbers. A row with a number outside them is corrupt.
// They are wider than any real value, and narrow enough that sums do not
// overflow: an overflow must not pay for a card.
const (
	maxUSD    = int64(1_000_000_00)        // cents of one card
	minMillis = int64(-62_135_596_800_000) // the beginning of the year 1
	maxMillis = int64(253_402_300_799_999) // the end of the year 9999; JSON has no later time
	maxBlocks = int64(math.MaxInt32)       // confirmations of a payment
	// maxDueMillis is the longest time until the next attempt to issue a card.
	// Attempts are at most minutes apart.
	maxDueMillis = int64(3_600_000)
)

// number is an integer of a row, with its bounds.
type number struct {
	column      string
	value       int64
	least, most int64
}

// numbers returns the integers of a card. Columns that were not selected are 0,
// which is within the bounds.
func (r *cardRow) numbers() [21]number {
	most := int64(card.Currency{}.MaxAmount())
	value := func(ms *int64) int64 {
		if ms == nil {
			return 0
		}
		return *ms
	}
	return [21]number{
		{"created_at", r.CreatedAt, minMillis, maxMillis},
		{"usd_cents", r.USDCents, 1, maxUSD},
		{"amount", r.Amount, 1, most},
		{"rate", r.Rate, 0, math.MaxInt64},
		{"rate_at", r.RateAt, minMillis, maxMillis},
		{"expires_at", r.ExpiresAt, minMillis, maxMillis},
		{"confirmations_required", int64(r.ConfirmationsRequired), 1, maxBlocks},
		{"received", r.Received, 0, most},
		{"settled", r.Settled, 0, most},
		{"height", r.Height, 0, most},
		{"accepted", r.Accepted, 0, most},
		{"refunded", r.Refunded, 0, most},
		{"written_off", r.WrittenOff, 0, most},
		{"canceled_at", value(r.CanceledAt), minMillis, maxMillis},
		{"credit_paid", r.CreditPaid, 0, most},
		{"credit_held", r.CreditHeld, 0, most},
		{"credit_surplus", r.CreditSurplus, 0, most},
		{"credit_refunded", r.CreditRefunded, 0, most},
		{"credit_lost", r.CreditLost, 0, math.MaxInt64},
		{"credit_written_off", r.CreditWrittenOff, 0, math.MaxInt64},
		{"credentials_purged_at", value(r.PurgedAt), minMillis, maxMillis},
	}
}

// checkNumbers returns an error that names the first column whose number is
// outside its bounds.
func (r *cardRow) checkNumbers() error {
	for _, n := range r.numbers() {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("its %s is out of range", n.column)
		}
	}
	return nil
}

// hasImpossibleNumber is checkNumbers as an SQL condition on cards c.
func hasImpossibleNumber() string {
	var conditions []string
	for _, n := range new(cardRow).numbers() {
		conditions = append(conditions, fmt.Sprintf("c.%s NOT BETWEEN %d AND %d", n.column, n.least, n.most))
	}
	return strings.Join(conditions, " OR ")
}

// countedUSD is an expression for the cents of a card. It is NULL if they are
// out of range, so that sums do not overflow.
func countedUSD(column string) string {
	return fmt.Sprintf("CASE WHEN %s BETWEEN 1 AND %d THEN %[1]s END", column, maxUSD)
}
