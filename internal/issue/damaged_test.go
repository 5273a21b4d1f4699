package issue_test

import (
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/issue"
)

// A paid card whose row can't be decoded delays no other card. It is issued
// once its row is repaired.
func TestIssue_CorruptCard_OthersAreIssued(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards := r.manyPaid(3)
		r.exec("UPDATE cards SET currency = 'canary' WHERE uuid = '" + cards[0].UUID.String() + "'")
		for range 3 {
			start := time.Now()
			r.issue(3)
			r.wantCard(cards[1])
			r.wantCard(cards[2])
			var state, reason string
			var due, attempts int64
			check(t, r.direct.QueryRow("SELECT state, reason, due_at, attempts FROM intents WHERE card_uuid = $1",
				cards[0].UUID).Scan(&state, &reason, &due, &attempts))
			wait := time.UnixMilli(due).Sub(start)
			if state != "open" || reason != "the card's row can't be decoded" || wait <= 0 || wait > time.Minute {
				t.Errorf("issuing is %s, %q, due %s after the start", state, reason, wait)
			}
			r.exec("UPDATE intents SET due_at = 0 WHERE card_uuid = '" + cards[0].UUID.String() + "'")
			cards = append(cards[:1], r.manyPaid(2)...)
		}
		r.exec("UPDATE cards SET currency = 'monero'")
		r.supplier.calls = nil
		r.issue(3)
		r.want(cards[0], issue.StateDone, "issued", "")
		r.wantCard(cards[0])
	})
}
