package issue_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/issue"
)

// An attempt that panics may have reached the supplier: it is looked up later.
// The other cards of the batch are issued.
func TestIssueDue_SupplierPanics_OtherCardsAreIssued(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards := r.manyPaid(4)
		poison := cards[1]
		r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
			if q.Key == poison.UUID.String() {
				if _, err := r.supplier.make(ctx, q); err != nil {
					return issue.Answer{}, err
				}
				panic("canary 4111 1111 1111 1111")
			}
			return r.supplier.make(ctx, q)
		}
		r.issue(4)
		for i, c := range cards {
			if i != 1 {
				r.wantCard(c)
			}
		}
		if i := r.want(poison, issue.StateOpen, "unknown", "an internal error, see the log"); i.Attempts != 1 {
			t.Errorf("%d attempts", i.Attempts)
		}
		r.issue(0) // it backs off
		r.due()
		r.issue(1)
		r.wantCard(poison)
		if n := r.supplier.requests(poison); n != 2 {
			t.Errorf("the supplier was asked %d times, want a request and a look-up", n)
		}
		text := string(r.log.bytes())
		if strings.Count(text, "msg=\"attempt to issue a card panicked\"") != 1 || !strings.Contains(text, poison.UUID.String()) ||
			!strings.Contains(text, "panic_test.go:") ||
			strings.Contains(text, "canary") || strings.Contains(text, "4111") {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// An intent with an impossible number of attempts backs off like any other, and
// blocks no claims.
func TestIssueDue_ImpossibleAttempts_CardIsIssuedLater(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		for _, column := range []string{"attempts", "fence"} {
			for _, n := range []int64{-10, -1, 1 << 31, 1 << 62, math.MaxInt64, math.MinInt64} {
				damaged, well := r.paid(), r.paid()
				// PostgreSQL rejects numbers of more than 32 bits; the intent
				// is then unchanged.
				_, _ = r.direct.Exec(fmt.Sprintf("UPDATE intents SET %s = $1 WHERE card_uuid = $2", column), n, damaged.UUID)
				r.supplier.submit = func(_ context.Context, q issue.Request) (issue.Answer, error) {
					return issue.Answer{Outcome: issue.Pending}, nil
				}
				r.issue(2)
				r.want(damaged, issue.StatePending, "pending", "")
				r.supplier.submit = nil
				r.supplier.lookup = r.supplier.make
				r.due()
				r.issue(2)
				r.supplier.lookup = nil
				r.wantCard(damaged)
				r.wantCard(well)
			}
		}
	})
}

// Suppliers forget keys. If the time of a key's first use is unknown, the key
// must not be used again.
func TestIssueDue_ImpossibleFirstAsked_IsNotSubmittedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		r.supplier.retention = 24 * time.Hour
		r.start()
		for _, at := range []int64{-10, 0, 1 << 62, math.MaxInt64, math.MinInt64} {
			c := r.paid()
			r.supplier.submit = func(context.Context, issue.Request) (issue.Answer, error) {
				return issue.Answer{}, context.DeadlineExceeded
			}
			r.issue(1)
			r.supplier.submit = nil
			_, err := r.direct.Exec("UPDATE intents SET first_asked_at = $1, due_at = 0 WHERE card_uuid = $2", at, c.UUID)
			check(t, err)
			r.issue(1)
			r.want(c, issue.StateParked, "unknown",
				"the supplier does not know the request, and may have forgotten it: ask the supplier, then retry or refund")
			r.clock.pass(time.Hour) // ends the pause of a supplier that did not answer
		}
	})
}

// A request's key contains the number of declines. If that is impossible, the
// key is unknown.
func TestIssueDue_ImpossibleDeclines_IsParked(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		for _, n := range []int64{-10, -1, math.MaxInt32, math.MaxInt64, math.MinInt64} {
			c := r.paid()
			if _, err := r.direct.Exec("UPDATE intents SET declines = $1 WHERE card_uuid = $2", n, c.UUID); err != nil {
				continue // PostgreSQL's integers have 32 bits
			}
			r.issue(1)
			r.want(c, issue.StateParked, "", "the stored number of refusals is impossible: restore the row, then retry")
			if n := r.supplier.requests(c); n != 0 {
				t.Errorf("the supplier was asked %d times", n)
			}
		}
	})
}
