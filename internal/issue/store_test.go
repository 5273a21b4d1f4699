package issue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

func TestIssue_MoneyLeavesDuringRequest_CardNotStored(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c, other := r.paid(), r.paid()
		r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
			if q.Key == c.UUID.String() {
				r.assess(c, card.Unpaid)
			}
			return r.supplier.make(ctx, q)
		}
		r.issue(2)
		r.want(c, issue.StateOpen, "issued", unpaid)
		r.wantCard(other)
		r.due()
		r.issue(0)
		r.assess(c, card.Paid)
		r.wantCalls("submit", "submit")
		r.issue(1)
		r.wantCalls("look up")
		r.wantCard(c)
		if len(r.supplier.cards) != 2 {
			t.Errorf("the supplier issued %d cards", len(r.supplier.cards))
		}
	})
}

func TestIssue_MoneyLeavesBeforeRequest_NoRequestSent(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		r.store.reading = func() error { r.assess(c, card.Unpaid); return nil }
		r.issue(1)
		r.wantCalls()
		if i := r.want(c, issue.StateOpen, "", unpaid); i.FirstAskedAt != nil {
			t.Errorf("asked at %s", i.FirstAskedAt)
		}
		r.wantWait(c, 500*time.Millisecond, time.Second)
		r.store.reading = nil
		r.assess(c, card.Paid)
		r.due()
		r.supplier.submit = pending
		r.issue(1)
		r.wantCalls("submit")
		first := r.want(c, issue.StatePending, "pending", "").FirstAskedAt
		r.store.reading = func() error { r.assess(c, card.Unpaid); return nil }
		r.due()
		r.issue(1) // this time with an earlier request
		if i := r.want(c, issue.StatePending, "pending", unpaid); i.FirstAskedAt == nil || !i.FirstAskedAt.Equal(*first) ||
			i.Reference != "r1" {
			t.Errorf("%+v", i)
		}
		r.store.reading, r.supplier.submit, r.supplier.lookup = nil, nil, r.supplier.make
		r.assess(c, card.Paid)
		r.due()
		r.issue(1)
		r.wantCalls("look up r1")
		r.wantCard(c)
	})
}

func TestIssue_DuplicateNumber_Parked(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		first := r.paid()
		r.issue(1)
		second, third := r.paid(), r.paid()
		r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
			if q.Key == second.UUID.String() {
				q.Key = first.UUID.String()
			}
			return r.supplier.make(ctx, q)
		}
		r.issue(2)
		r.want(second, issue.StateParked, "issued", notAlone)
		r.wantCard(first)
		r.wantCard(third)
		if log := string(r.log.bytes()); !strings.Contains(log, "card needs an operator") ||
			!strings.Contains(log, second.UUID.String()) {
			t.Errorf("logged %s", log)
		}
		if r.woken.Load() != 2 {
			t.Errorf("woken %d times", r.woken.Load())
		}
		r.supplier.submit = nil
		r.retry(second)
		r.issue(1) // the supplier does not know the request
		r.wantCard(second)
	})
}

func TestIssue_ClaimLost_NothingStored(t *testing.T) {
	for name, answer := range map[string]handler{"issued": nil, "pending": pending, "declined": declined,
		"unknown": unknown,
		"flawed":  answering(issue.Answer{Outcome: issue.Issued}, nil)} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				lost, kept := r.paid(), r.paid()
				r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
					if q.Key != lost.UUID.String() {
						return r.supplier.make(ctx, q)
					}
					r.exec("UPDATE intents SET fence = fence + 1 WHERE card_uuid = '" + q.Key + "'") // another process took the card over
					if answer != nil {
						return answer(ctx, q)
					}
					return r.supplier.make(ctx, q)
				}
				r.issue(2)
				r.want(lost, issue.StateOpen, "", "")
				r.wantCard(kept)
				if log := string(r.log.bytes()); answer == nil &&
					!strings.Contains(log, "another process has issued the card, or took it over") {
					t.Errorf("logged %s", log)
				}
			})
		})
	}
}

func TestIssue_TwoProcessesOneCard_IssuedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c, slow := r.paid(), r.issuer
		r.start() // the fast process
		first := true
		r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
			if first {
				first = false
				r.due()    // the first process hung until its claim expired
				r.issue(1) // the other process issues the card
			}
			return r.supplier.make(ctx, q)
		}
		if n, err := slow.IssueDue(t.Context()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		r.wantCalls("submit", "look up", "submit")
		r.wantCard(c)
		if r.woken.Load() != 1 || len(r.supplier.cards) != 1 {
			t.Errorf("woken %d times for %d cards", r.woken.Load(), len(r.supplier.cards))
		}
	})
}

func TestIssue_TwoProcessesManyCards_SubmittedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards, one := r.manyPaid(40), r.issuer
		before := r.store
		r.start()
		if before == r.store {
			t.Fatal("there is only one process")
		}
		done := make(chan error, 2)
		for _, i := range []*issue.Issuer{one, r.issuer} {
			go func() { done <- i.Tick(t.Context()) }()
		}
		for range 2 {
			check(t, <-done)
		}
		for _, c := range cards {
			r.wantCard(c)
		}
		if len(r.supplier.calls) != len(cards) {
			t.Errorf("%d calls", len(r.supplier.calls))
		}
	})
}

// Each store access fails in two ways: without and with effect.
func TestIssue_StoreFails_RetriedLater(t *testing.T) {
	unavailable := card.ErrUnavailable.WithCause(errFault)
	for name, tt := range map[string]struct {
		breaks    func(*faultyStore)
		worked    int
		then      []string // expected calls to the supplier in total
		generated bool     // despite the error
	}{
		"claim fails": {func(d *faultyStore) { d.claimFails = unavailable }, 0, []string{"submit"}, false},
		"claim reply lost": {func(d *faultyStore) {
			d.claims = func([]issue.Intent, int, time.Duration) []issue.Intent { return nil }
		}, 0, []string{"look up", "submit"}, false},
		"read fails": {func(d *faultyStore) { d.reading = func() error { return unavailable } }, 1, []string{
			"look up", "submit"}, false},
		"commit fails": {func(d *faultyStore) {
			d.commits = func(context.Context, func() error) error { return unavailable }
		}, 1, []string{"submit", "look up"}, false},
		"commit reply lost": {func(d *faultyStore) {
			d.commits = func(_ context.Context, commit func() error) error {
				if err := commit(); err != nil {
					return err
				}
				return unavailable
			}
		}, 1, []string{"submit"}, true},
		"seal fails":   {func(d *faultyStore) { d.sealFails = unavailable }, 1, []string{"submit", "look up"}, false},
		"digest fails": {func(d *faultyStore) { d.digestFails = unavailable }, 1, []string{"submit", "look up"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				c := r.paid()
				tt.breaks(r.store)
				want := error(card.ErrUnavailable)
				if name == "claim reply lost" {
					want = nil
				}
				r.fails(tt.worked, want)
				if n := r.count("cards WHERE status = 'generated'"); (n == 1) != tt.generated {
					t.Errorf("%d cards were issued", n)
				}
				r.start()
				r.due()
				check(t, r.issuer.Tick(t.Context()))
				r.wantCalls(tt.then...)
				r.wantCard(c)
				if len(r.supplier.cards) != 1 {
					t.Errorf("the supplier issued %d cards", len(r.supplier.cards))
				}
			})
		})
	}
}

func TestIssue_AnswerNotSaved_LookedUp(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c, good := r.paid(), r.paid()
		r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
			if q.Key == c.UUID.String() {
				return issue.Answer{Outcome: issue.Declined, Reason: "out of stock"}, nil
			}
			return r.supplier.make(ctx, q)
		}
		r.supplier.lookup = declined
		r.store.saveFails = card.ErrUnavailable
		r.fails(2, card.ErrUnavailable)
		r.wantCard(good)
		r.want(c, issue.StateOpen, "", "")
		r.store.saveFails = nil
		r.due()
		r.issue(1)
		r.wantCalls("submit", "submit", "look up")
		r.want(c, issue.StateRefundDue, "declined", "out of stock")
	})
}

// A card that can't be encrypted does not block the rest.
func TestIssue_OneFails_OthersAreIssued(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards := r.manyPaid(5)
		bad := cards[2].UUID.String()
		r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
			if q.Key == bad {
				r.assess(cards[2], card.Unpaid)
			}
			return r.supplier.make(ctx, q)
		}
		r.issue(5)
		for i, c := range cards {
			if i != 2 {
				r.wantCard(c)
			}
		}
		r.want(cards[2], issue.StateOpen, "issued", unpaid)
		r.assess(cards[2], card.Paid)
	})
}

func TestTick_ManyDue_IssuesAll(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards := r.manyPaid(40)
		check(t, r.issuer.Tick(t.Context()))
		for _, c := range cards {
			r.wantCard(c)
		}
		r.store.claimFails = card.ErrUnavailable
		if err := r.issuer.Tick(t.Context()); err == nil {
			t.Error("no error")
		}
	})
}
