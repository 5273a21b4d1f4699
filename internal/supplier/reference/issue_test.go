package reference_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/supplier/reference"
)

func TestIssue_Prompt_SendsOneRequest(t *testing.T) {
	onEach(t, func(t *testing.T, r *process) {
		c := r.paid()
		r.issue()
		r.wantCard(c)
		r.wantLedger("", "asked", "made")
	})
}

// Hazard: the card was issued, but the answer was lost.
func TestIssue_Ambiguous_MakesOneCard(t *testing.T) {
	onEach(t, func(t *testing.T, r *process) {
		r.behave("ambiguous=1x")
		c := r.paid()
		r.issue()
		r.want(c, issue.StateOpen, "unknown")
		r.wantLedger("", "asked", "made")
		r.issue()
		r.wantCard(c)
		r.wantLedger("", "asked", "made", "looked up")
	})
}

// Hazard: the answer arrives after the timeout.
func TestIssue_Slow_MakesOneCard(t *testing.T) {
	onEach(t, func(t *testing.T, r *process) {
		hurried, err := supplier.NewHTTP(
			supplier.HTTPConfig{Name: "acme", URL: r.fixture.url, Secret: secret, Mode: card.TestMode, Insecure: true,
				Now: r.clock.Now, Timeout: 50 * time.Millisecond})
		check(t, err)
		r.behave("slow=1x")
		c := r.paid()
		issuer, err := issue.New(r.db, r.vault, issue.Wake{}, slog.New(slog.NewTextHandler(r.log, nil)),
			issue.Config{Routes: issue.Only(hurried), Now: r.clock.Now})
		check(t, err)
		_, err = issuer.IssueDue(t.Context())
		check(t, err)
		r.want(c, issue.StateOpen, "unknown")
		r.issue()
		r.wantCard(c)
	})
}

func TestIssue_Pending_IsLookedUpUntilIssued(t *testing.T) {
	onEach(t, func(t *testing.T, r *process) {
		r.behave("pending")
		c := r.paid()
		r.issue()
		if i := r.want(c, issue.StatePending, "pending"); !strings.HasPrefix(i.Reference, "ref_") {
			t.Errorf("reference %q", i.Reference)
		}
		r.issue()
		r.want(c, issue.StatePending, "pending")
		r.clock.pass(3 * time.Second)
		r.issue()
		r.wantCard(c)
		r.wantLedger("", "asked", "looked up", "made", "looked up")
	})
}

func TestIssue_Declined_RefundIsDue(t *testing.T) {
	for _, how := range []string{"declining", "out-of-stock"} {
		t.Run(how, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *process) {
				r.behave(how + "=1x")
				c := r.paid()
				r.issue()
				r.want(c, issue.StateRefundDue, "declined")
				r.issue()
				r.wantLedger("", "asked", "declined")
			})
		})
	}
}

// Hazard: the card differs from the paid one.
func TestIssue_WrongCard_IsNeverIssued(t *testing.T) {
	for _, how := range []string{"wrong-amount", "wrong-currency", "wrong-key", "bad-number", "expired"} {
		t.Run(how, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *process) {
				r.behave(how)
				c := r.paid()
				r.issue()
				r.want(c, issue.StateParked, "issued")
				r.issue() // no further request
				r.wantLedger("", "asked", "made")
			})
		})
	}
}

// Hazard: two customers with one card.
func TestIssue_CardOfOtherOrder_IsNeverIssued(t *testing.T) {
	for _, how := range []string{"duplicate-number", "wrong-key"} {
		t.Run(how, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *process) {
				first := r.paid()
				r.issue()
				r.wantCard(first)
				r.behave(how)
				second := r.paid()
				r.issue()
				r.want(second, issue.StateParked, "issued")
			})
		})
	}
}

func TestIssue_Busy_IsRetried(t *testing.T) {
	for _, how := range []string{"rate-limited", "maintenance"} {
		t.Run(how, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *process) {
				r.behave(how + "=2x")
				c := r.paid()
				r.issue()
				r.clock.pass(time.Second) // the requested wait
				r.issue()
				r.wantLedger("")
				if record, err := r.db.CardDetail(t.Context(), c.UUID); err != nil || record.Intent.State != string(issue.StateOpen) ||
					record.Credentials {
					t.Errorf("%+v, %v", record.Intent, err)
				}
				r.clock.pass(time.Second)
				r.issue()
				r.wantCard(c)
			})
		})
	}
}

// Hazard: the supplier has forgotten the key, and would issue a second card.
func TestIssue_ForgottenKey_IsNotRequestedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, r *process) {
		if _, err := r.http.Offers(t.Context()); err != nil || r.http.KeyRetention() != time.Minute {
			t.Fatalf("%s, %v", r.http.KeyRetention(), err)
		}
		r.behave("ambiguous=1x")
		c := r.paid()
		r.issue()
		r.want(c, issue.StateOpen, "unknown")
		r.clock.pass(time.Minute)
		r.backdate(time.Minute)
		r.issue()
		r.want(c, issue.StateParked, "unknown")
		r.issue()
		r.wantLedger("", "asked", "made", "forgot", "looked up")
	}, func(c *reference.Config) { c.ForgetAfter = time.Minute })
}

// Hazard: all behaviors together. No key ever has two cards, and every stored
// card is the issued one.
func TestIssue_RandomBehavior_OneCardPerKey(t *testing.T) {
	onEach(t, func(t *testing.T, r *process) {
		r.behave("ambiguous=0.4", "pending=0.3", "rate-limited=0.2", "maintenance=0.2")
		ids := map[uuid.UUID]bool{}
		for range 12 {
			ids[r.paid().UUID] = true
		}
		for range 60 {
			r.issue()
			r.clock.pass(time.Second)
		}
		for id := range ids {
			record, err := r.db.CardDetail(t.Context(), id)
			check(t, err)
			if record.Intent.State != string(issue.StateDone) {
				t.Errorf("%s: %s %s %s", id, record.Intent.State, record.Intent.Answer, record.Intent.Reason)
			}
		}
		if n := strings.Count(strings.Join(r.ledger(""), " "), reference.Made); n != len(ids) {
			t.Errorf("%d cards were issued for %d orders", n, len(ids))
		}
	}, func(c *reference.Config) { c.Seed = 7 })
}
