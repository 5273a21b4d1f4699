package issue_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

const (
	unclear  = "the supplier gave no clear answer"
	forgot   = "the supplier does not know the request, and may have forgotten it: ask the supplier, then retry or refund"
	unpaid   = "the payment is no longer confirmed"
	noDate   = "the supplier gave a card that is expired, or whose expiration date can't be read"
	gone     = "supplier press may have issued the card, but was removed from the configuration: add it again and retry"
	notAlone = "the supplier gave a card that another order has already"
)

var (
	unknown  = answering(issue.Answer{}, nil)
	pending  = answering(issue.Answer{Outcome: issue.Pending, Reference: "r1"}, nil)
	declined = answering(issue.Answer{Outcome: issue.Declined, Reason: "out of stock"}, nil)
	// an answer that comes with an error is ignored
	hangs = answering(issue.Answer{Outcome: issue.Issued, Credentials: card.Credentials{CardNumber: "1"}}, errFault)
	odd   = answering(issue.Answer{Outcome: 9}, nil)
)

func TestIssue_PaidCard_SubmittedOnceAndStored(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		r.supplier.submit = after(func() { // supplier, key and time of the request are committed by now
			i := r.want(c, issue.StateOpen, "", "")
			if i.Supplier != "press" || i.FirstAskedAt == nil || r.count("intents WHERE key = '"+c.UUID.String()+"'") != 1 {
				t.Errorf("before the call: %+v", i)
			}
			r.wantWait(c, 8*time.Second, 8*time.Second) // the TTL of the claim, which was not prolonged
		}, r.supplier.make)
		r.issue(1)
		r.wantCard(c)
		r.wantCalls("submit")
		var hash []byte // must not change between versions
		check(t, r.direct.QueryRow("SELECT card_number_hash FROM intents").Scan(&hash))
		want, err := r.vault.Digest("card number", []byte(r.supplier.cards[c.UUID.String()].CardNumber.Reveal()))
		if check(t, err); !bytes.Equal(hash, want) {
			t.Error("the hash of the number changed")
		}
		r.due()
		r.issue(0)
		if r.woken.Load() != 1 {
			t.Errorf("woken %d times", r.woken.Load())
		}
	})
}

func TestIssue_NoCard_RetriedOrRefundDue(t *testing.T) {
	for name, tt := range map[string]struct {
		submit         handler
		state          issue.State
		answer, reason string
		least, most    time.Duration
	}{
		"pending":    {pending, issue.StatePending, "pending", "", 2 * time.Second, 4 * time.Second},
		"declined":   {declined, issue.StateRefundDue, "declined", "out of stock", 0, 0},
		"unknown":    {unknown, issue.StateOpen, "unknown", unclear, 500 * time.Millisecond, time.Second},
		"an error":   {hangs, issue.StateOpen, "unknown", unclear, 500 * time.Millisecond, time.Second},
		"no outcome": {odd, issue.StateOpen, "unknown", unclear, 500 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				c := r.paid()
				r.supplier.submit = tt.submit
				r.issue(1)
				r.want(c, tt.state, tt.answer, tt.reason)
				r.wantCalls("submit")
				r.wantWait(c, tt.least, tt.most)
				events := r.count("events WHERE type = 'card.refund_due'")
				if due := tt.state == issue.StateRefundDue; (r.woken.Load() == 1) != due || (events == 1) != due ||
					r.woken.Load() > 1 || events > 1 {
					t.Errorf("woke the sender %d times for %d events", r.woken.Load(), events)
				}
			})
		})
	}
}

// The second attempt looks the request up, after any first answer, and submits
// it only if the supplier does not know it.
func TestIssue_EarlierRequest_LookedUpFirst(t *testing.T) {
	firsts := map[string]handler{"pending": pending, "unknown": unknown, "an error": hangs}
	for name, tt := range map[string]struct {
		lookup handler // nil: answers from the ledger
		made   bool    // the supplier issued the card in spite of its answer
		calls  []string
		state  issue.State
		answer string
		reason string
	}{
		"card found":      {made: true, calls: []string{"look up"}, state: issue.StateDone, answer: "issued"},
		"unknown request": {calls: []string{"look up", "submit"}, state: issue.StateDone, answer: "issued"},
		"pending":         {lookup: pending, calls: []string{"look up"}, state: issue.StatePending, answer: "pending"},
		"declined": {lookup: declined, calls: []string{"look up"}, state: issue.StateRefundDue, answer: "declined",
			reason: "out of stock"},
		"no answer":       {lookup: hangs, calls: []string{"look up"}, answer: "unknown", reason: unclear},
		"invalid outcome": {lookup: odd, calls: []string{"look up"}, answer: "unknown", reason: unclear},
		"flawed card": {lookup: answering(issue.Answer{Outcome: issue.Issued}, nil), calls: []string{"look up"},
			state: issue.StateParked, answer: "issued", reason: "the supplier gave a card number that is not well formed"},
		"new reference": {made: true, lookup: answering(issue.Answer{Outcome: issue.Pending, Reference: "r2"}, nil),
			calls: []string{"look up"}, state: issue.StatePending, answer: "pending"},
		"no reference": {made: true, lookup: answering(issue.Answer{Outcome: issue.Pending}, nil),
			calls: []string{"look up"}, state: issue.StatePending, answer: "pending"},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				for first, answer := range firsts {
					c := r.paid()
					r.supplier.submit, r.supplier.lookup = answer, nil
					if tt.made {
						_, _ = r.supplier.make(t.Context(), issue.Request{Key: c.UUID.String(), USD: c.USD})
					}
					r.issue(1)
					r.wantCalls("submit")
					r.start() // another process must do the same
					r.due()
					r.supplier.submit, r.supplier.lookup = nil, tt.lookup
					r.issue(1)
					state, calls, reference := tt.state, append([]string(nil), tt.calls...), ""
					if state == "" { // unchanged
						state = map[string]issue.State{"pending": issue.StatePending, "unknown": issue.StateOpen,
							"an error": issue.StateOpen}[first]
					}
					if first == "pending" || name == "pending" {
						reference = "r1"
					}
					if name == "new reference" {
						reference = "r2"
					}
					if first == "pending" {
						for i := range calls {
							calls[i] += " r1"
						}
					}
					r.wantCalls(calls...)
					i := r.want(c, state, tt.answer, tt.reason)
					if i.Reference != reference {
						t.Errorf("after %s the reference is %q, want %q", first, i.Reference, reference)
					}
					if state == issue.StateDone {
						r.wantCard(c)
					}
					r.exec("UPDATE intents SET state = 'parked' WHERE state IN ('open', 'pending')") // so that the next round skips them
				}
			})
		})
	}
}

func TestIssue_ProcessDied_LookedUpFirst(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		_, err := r.db.ClaimIntents(t.Context(), of("press"), 1, time.Minute) // the process dies here
		check(t, err)
		r.issue(0) // its claim has not expired
		r.due()
		r.issue(1)
		r.wantCalls("look up", "submit")
		r.wantCard(c)
	})
}

func TestIssue_KeyExpired_Parked(t *testing.T) {
	const grace = 20 * time.Second // the longest attempt
	for name, tt := range map[string]struct {
		retention, asked time.Duration
		lookup           handler
		want             issue.State
	}{
		"unlimited":               {0, 1000 * time.Hour, nil, issue.StateDone},
		"long enough":             {24 * time.Hour, 24*time.Hour - grace - 1, nil, issue.StateDone},
		"ends during the call":    {24 * time.Hour, 24*time.Hour - grace, nil, issue.StateParked},
		"expired":                 {24 * time.Hour, 25 * time.Hour, nil, issue.StateParked},
		"shorter than a call":     {time.Second, 0, nil, issue.StateParked},
		"expired, lookup answers": {24 * time.Hour, 25 * time.Hour, pending, issue.StatePending},
		"expired, lookup fails":   {24 * time.Hour, 25 * time.Hour, hangs, issue.StateOpen},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				c := r.paid()
				r.supplier.submit, r.supplier.retention = hangs, tt.retention
				r.issue(1)
				r.wantCalls("submit") // the first request is always submitted
				r.due()
				r.supplier.submit, r.supplier.lookup = nil, tt.lookup
				r.store.claims = func(claimed []issue.Intent, _ int, _ time.Duration) []issue.Intent {
					claimed[0].FirstAskedAt = claimed[0].ClaimedAt.Add(-tt.asked)
					return claimed
				}
				r.issue(1)
				switch tt.want {
				case issue.StateDone:
					r.wantCalls("look up", "submit")
					r.wantCard(c)
				case issue.StatePending:
					r.wantCalls("look up")
					r.want(c, issue.StatePending, "pending", "")
				case issue.StateOpen:
					r.wantCalls("look up")
					r.want(c, issue.StateOpen, "unknown", unclear)
				default:
					r.wantCalls("look up")
					r.want(c, issue.StateParked, "unknown", forgot)
					r.store.claims = nil
					r.retry(c) // the operator knows that no card was issued
					if tt.retention > grace {
						r.issue(1)
						r.wantCalls("look up", "submit")
						r.wantCard(c)
					}
				}
			})
		})
	}
}

func TestRetry_Declined_SubmittedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		r.supplier.submit, r.supplier.lookup = declined, declined
		r.issue(1)
		r.due()
		r.issue(0)
		r.wantCalls("submit")
		r.retry(c)
		r.issue(1)
		r.wantCalls("look up", "submit")
		r.want(c, issue.StateRefundDue, "declined", "out of stock")
		// A repeated decline counts as the old one until the supplier gives
		// another answer, even after many attempts.
		r.retry(c)
		for _, answer := range []handler{hangs, unknown, odd} {
			r.supplier.submit = answer
			r.issue(1)
			r.wantCalls("look up", "submit")
			r.want(c, issue.StateOpen, "declined", unclear)
			r.due()
		}
		r.supplier.lookup = hangs
		r.issue(1)
		r.wantCalls("look up")
		r.due()
		r.supplier.submit, r.supplier.lookup = pending, declined
		r.issue(1)
		r.wantCalls("look up", "submit")
		r.want(c, issue.StatePending, "pending", "")
		r.due()
		r.issue(1) // a new decline
		r.wantCalls("look up r1")
		r.want(c, issue.StateRefundDue, "declined", "out of stock")
		r.retry(c)
		r.supplier.submit = nil
		r.issue(1)
		r.wantCalls("look up", "submit")
		r.wantCard(c)
	})
}

func TestRetry_FlawedCard_BuysNoSecondCard(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		made, err := r.supplier.make(t.Context(), issue.Request{Key: c.UUID.String(), USD: c.USD})
		check(t, err)
		flawed := made
		flawed.Credentials.ExpirationDate = "01/20"
		r.supplier.submit = answering(flawed, nil)
		r.issue(1)
		r.want(c, issue.StateParked, "issued", noDate)
		r.supplier.lookup = answering(flawed, nil)
		r.retry(c)
		r.issue(1)
		r.want(c, issue.StateParked, "issued", noDate)
		r.supplier.lookup = answering(made, nil) // the supplier corrected the card
		r.retry(c)
		r.issue(1)
		r.wantCalls("submit", "look up", "look up")
		r.wantCard(c)
	})
}

func TestIssue_OtherSupplierMayHaveIssued_Parked(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		unclear, refused := r.paid(), r.paid()
		r.supplier.submit = func(_ context.Context, q issue.Request) (issue.Answer, error) {
			if q.Key == refused.UUID.String() {
				return issue.Answer{Outcome: issue.Declined, Reference: "theirs"}, nil
			}
			return issue.Answer{}, errFault
		}
		r.issue(2)
		r.wantCalls("submit", "submit")
		r.supplier.name, r.supplier.submit = "another press", nil
		r.due()
		r.issue(1)
		r.want(unclear, issue.StateParked, "unknown", gone)
		r.retry(unclear)
		r.issue(1)
		r.want(unclear, issue.StateParked, "unknown", gone)
		r.wantCalls()
		r.retry(refused) // no supplier issued it
		r.issue(1)
		r.wantCalls("look up", "submit")
		r.wantCard(refused)
		r.supplier.name = "press"
		r.retry(unclear)
		r.issue(1)
		r.wantCalls("look up", "submit")
		r.wantCard(unclear)
	})
}

func TestIssue_FlawedCard_Parked(t *testing.T) {
	for name, flaw := range map[string]func(*card.Credentials){
		"wrong check digit":    func(c *card.Credentials) { c.CardNumber = "4111111111111112" },
		"not a number":         func(c *card.Credentials) { c.CardNumber = "4111-1111-1111" },
		"no number":            func(c *card.Credentials) { c.CardNumber = "" },
		"expired":              func(c *card.Credentials) { c.ExpirationDate = "01/20" },
		"unreadable date":      func(c *card.Credentials) { c.ExpirationDate = "2029-01" },
		"no code":              func(c *card.Credentials) { c.SecurityCode = "" },
		"dangerous URL":        func(c *card.Credentials) { c.URL = "javascript:alert(1)" },
		"unencrypted URL":      func(c *card.Credentials) { c.URL = "http://example.com" },
		"URL without password": func(c *card.Credentials) { c.URLPassword = "" },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				c, good := r.paid(), r.paid()
				r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
					a, err := r.supplier.make(ctx, q)
					if q.Key == c.UUID.String() {
						flaw(&a.Credentials)
					}
					return a, err
				}
				r.issue(2)
				if i := r.want(c, issue.StateParked, "issued", r.reason(c)); !strings.HasPrefix(i.Reason, "the supplier gave ") {
					t.Errorf("reason %q", i.Reason)
				}
				r.wantCard(good)
				r.due()
				r.issue(0) // not requested again
			})
		})
	}
}

// The card's expiry is compared with the process's clock.
func TestIssue_CardExpired_Parked(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		r.clock.pass(3 * 365 * 24 * time.Hour)
		r.issue(1)
		r.want(c, issue.StateParked, "issued", noDate)
	})
}

// Suppliers' texts are stored and shown. Card numbers, and characters that a
// database or terminal can't handle, are removed.
func TestIssue_SupplierTexts_Cleaned(t *testing.T) {
	for given, kept := range map[string]string{
		"":                              "",
		"out of stock":                  "out of stock",
		"a\x00b\x1b[2Jc\nd\u0085e":      "a b [2Jc d e",
		"bad \xff byte":                 "bad ? byte",
		"card 4111111111111111 expired": "card [number] expired",
		"4111 1111 1111 1111":           "[number]",
		"4111-1111-1111":                "[number]",
		"12345678901 is too short":      "12345678901 is too short",
		"4111  1111  1111":              "4111  1111  1111", // not a format of card numbers
		strings.Repeat("x", 200):        strings.Repeat("x", 200),
		strings.Repeat("x", 201):        strings.Repeat("x", 200),
		strings.Repeat("ü", 150):        strings.Repeat("ü", 100),
		"x" + strings.Repeat("ü", 100):  "x" + strings.Repeat("ü", 99),
	} {
		t.Run(fmt.Sprintf("%.20q", given), func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				c := r.paid()
				r.supplier.submit = answering(issue.Answer{Outcome: issue.Declined, Reason: given}, nil)
				r.issue(1)
				r.want(c, issue.StateRefundDue, "declined", kept)
			})
		})
	}
}

func TestIssue_InvalidReference_Ignored(t *testing.T) {
	for given, kept := range map[string]string{
		"4111111111111111":       "4111111111111111", // the supplier's order number
		strings.Repeat("x", 200): strings.Repeat("x", 200),
		strings.Repeat("x", 201): "r1",
		"a\x00b":                 "r1",
		"a\nb":                   "r1",
		"\x00":                   "r1",
		"\xff":                   "r1",
		"":                       "r1",
	} {
		t.Run(fmt.Sprintf("%.20q", given), func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				c := r.paid()
				r.supplier.submit = pending
				r.issue(1)
				r.due()
				r.supplier.lookup = answering(issue.Answer{Outcome: issue.Pending, Reference: given}, nil)
				r.issue(1)
				if i := r.want(c, issue.StatePending, "pending", ""); i.Reference != kept {
					t.Errorf("reference %q, want %q", i.Reference, kept)
				}
			})
		})
	}
}

func TestIssue_Log_ContainsNoCardNumber(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		number := cardOf(c.UUID).CardNumber.Reveal()
		r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
			_, err := r.supplier.make(ctx, q)
			check(t, err)
			return issue.Answer{}, fmt.Errorf("can't decode {\"pan\": \"%s\"}\x1b[2J", number)
		}
		r.issue(1)
		for _, want := range []string{"level=WARN", "the supplier gave no clear answer", c.UUID.String(), "attempt=1",
			"submit: can't decode", "[number]"} {
			if log := string(r.log.bytes()); !strings.Contains(log, want) || strings.Contains(log, number) ||
				strings.Contains(log, "x1b") {
				t.Errorf("logged %s, want %s", log, want)
			}
		}
	})
}

func TestIssue_NeedsOperator_LoggedAsError(t *testing.T) {
	for name, tt := range map[string]struct {
		answer handler
		want   string
	}{
		"declined": {declined, "out of stock"},
		"flawed":   {answering(issue.Answer{Outcome: issue.Issued}, nil), "card number that is not well formed"},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				c := r.paid()
				r.supplier.submit = tt.answer
				r.issue(1)
				for _, want := range []string{"level=ERROR", "card needs an operator", c.UUID.String(), tt.want} {
					if log := string(r.log.bytes()); !strings.Contains(log, want) {
						t.Errorf("logged %s, want %s", log, want)
					}
				}
			})
		})
	}
}

func TestOutcome_Zero_IsUnknown(t *testing.T) {
	var zero issue.Outcome
	for o, want := range map[issue.Outcome]string{zero: "unknown", issue.Issued: "issued", issue.Pending: "pending",
		issue.Declined: "declined", 9: "Outcome(9)"} {
		if o.String() != want {
			t.Errorf("%d is %s", int(o), o)
		}
	}
}
