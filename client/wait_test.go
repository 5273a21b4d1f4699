package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

var testID = uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")

func TestWaitForCard_WaitsThroughEveryStateThatCanStillSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, []step{
			card(CardStatusAwaitingPayment, PaymentStateUnpaid), card(CardStatusAwaitingPayment, PaymentStateUnderpaid),
			card(CardStatusAwaitingPayment, PaymentStateDetected), card(CardStatusAwaitingPayment, PaymentStateConfirming),
			card(CardStatusAwaitingPayment, PaymentStatePaid), card(CardStatusAwaitingPayment, "a_state_of_the_future"),
			card(CardStatusGenerated, PaymentStatePaid),
		})
		got, err := c.WaitForCard(t.Context(), testID)
		if err != nil || got.Status != CardStatusGenerated || len(s.seen) != 7 {
			t.Errorf("%+v, %v after %d requests", got, err, len(s.seen))
		}
	})
}

func TestWaitForCard_GeneratedCardIsAnswered_WhateverItsPaymentDidLater(t *testing.T) {
	for _, state := range []PaymentState{PaymentStateReversed, PaymentStateLate} {
		c, _ := scripted(t, []step{card(CardStatusGenerated, state)})
		if got, err := c.WaitForCard(t.Context(), testID); err != nil || got.Status != CardStatusGenerated {
			t.Errorf("%s: %+v, %v", state, got, err)
		}
	}
}

func TestWaitForCard_EndsWhenWaitingIsOfNoUse(t *testing.T) {
	for _, state := range []PaymentState{PaymentStateExpired, PaymentStateLate, PaymentStateCanceled} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := scripted(t,
				[]step{card(CardStatusAwaitingPayment, PaymentStateUnpaid), card(CardStatusAwaitingPayment, state)})
			got, err := c.WaitForCard(t.Context(), testID)
			var e *PaymentError
			if !errors.As(err, &e) || e.State != state || e.UUID != testID || got == nil || got.Payment.State != state {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestWaitForCard_ContextEndsButTheLastCardIsKept(t *testing.T) {
	cause := errors.New("the customer disconnected")
	for name, last := range map[string]step{
		"in a pause":    card(CardStatusAwaitingPayment, PaymentStateConfirming),
		"in a request":  hang,
		"in an outage":  reset,
		"while refused": problem(503, ProblemCodeUnavailable, "Retry-After", "5"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, cause)
				defer cancel()
				c, _ := scripted(t, []step{card(CardStatusAwaitingPayment, PaymentStateConfirming), last})
				start := time.Now()
				got, err := c.WaitForCard(ctx, testID)
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) ||
					!strings.Contains(err.Error(), "the payment is confirming") {
					t.Error(err)
				}
				if got == nil || got.Payment.State != PaymentStateConfirming {
					t.Errorf("last seen: %+v", got)
				}
				if time.Since(start) != time.Hour {
					t.Errorf("ended after %v", time.Since(start))
				}
			})
		})
	}
}

// The operator may still issue the card, so the wait continues. The final error
// shows that the payment is not the problem.
func TestWaitForCard_ARefundThatIsDueDoesNotEndIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		due := strings.NewReplacer(`"unpaid"`, `"paid"`, `"amount_due"`, `"refund_due":"0.5","amount_due"`).Replace(testCard)
		c, _ := scripted(t, []step{answer(http.StatusOK, due)})
		got, err := c.WaitForCard(ctx, testID)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "no supplier makes the card, and 0.5 monero are to be given back") {
			t.Error(err)
		}
		if got == nil || got.Payment.RefundDue.String() != "0.5" {
			t.Errorf("%+v", got)
		}
	})
}

func TestWaitForCard_ARefundEndsIt(t *testing.T) {
	for _, state := range []PaymentState{PaymentStateUnpaid, PaymentStateExpired, PaymentStateCanceled} {
		refunded := strings.NewReplacer(`"unpaid"`, `"`+string(state)+`"`, `"status"`,
			`"refund":{"amount":"1.5","txid":null,"at":"2026-11-21T09:12:44.310Z"},"status"`).Replace(testCard)
		c, _ := scripted(t, []step{answer(http.StatusOK, refunded)})
		got, err := c.WaitForCard(t.Context(), testID)
		payment, ok := asType[*PaymentError](err)
		if !ok || !payment.Refunded || payment.State != state || !strings.Contains(err.Error(), "gave the money back") {
			t.Errorf("%s: %v", state, err)
		}
		if got == nil || got.Refund == nil || got.Refund.Amount.String() != "1.5" || got.Refund.TxID != "" {
			t.Errorf("%s: %+v", state, got)
		}
	}
}

func TestWaitForCard_OutageDoesNotEndIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c, _ := scripted(t,
			[]step{card(CardStatusAwaitingPayment, PaymentStateUnpaid), func(r *http.Request) (*http.Response, error) {
				if time.Since(start) < 10*time.Minute {
					return reset(r)
				}
				return card(CardStatusGenerated, PaymentStatePaid)(r)
			}})
		if got, err := c.WaitForCard(t.Context(), testID); err != nil || got.Status != CardStatusGenerated {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestWaitForCard_EndsWhenTheCardCannotBeRead(t *testing.T) {
	seen := card(CardStatusAwaitingPayment, PaymentStateUnpaid)
	for name, steps := range map[string][]step{
		"unknown":               {problem(404, ProblemCodeNotFound)},
		"never reached":         {reset},
		"token revoked halfway": {seen, problem(401, ProblemCodeUnauthorized)},
		"fault halfway":         {seen, problem(500, ProblemCodeInternal)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := scripted(t, steps)
				got, err := c.WaitForCard(t.Context(), testID)
				if err == nil || (got == nil) != (len(steps) == 1) {
					t.Errorf("%+v, %v", got, err)
				}
			})
		})
	}
}

func TestWaitForCard_PollsLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		c, _ := scripted(t, []step{func(r *http.Request) (*http.Response, error) {
			at = append(at, time.Now())
			return card(CardStatusAwaitingPayment, PaymentStateUnpaid)(r)
		}}, WithPollInterval(2*time.Second, 20*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := c.WaitForCard(ctx, testID); err == nil {
			t.Fatal("no error")
		}
		for i := 1; i < len(at); i++ {
			low, high := time.Second, 20*time.Second
			if i == 1 {
				high = 2 * time.Second
			} else if i > 7 {
				low = 10 * time.Second
			}
			if pause := at[i].Sub(at[i-1]); pause < low || pause > high {
				t.Errorf("pause %d is %v", i, pause)
			}
		}
	})
}

func TestWaitForCard_WaitsAsLongAsTheServiceAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, []step{
			card(CardStatusAwaitingPayment, PaymentStateUnpaid),
			problem(429, "", "Retry-After", "600"), card(CardStatusGenerated, PaymentStatePaid),
		})
		start := time.Now()
		if _, err := c.WaitForCard(t.Context(), testID); err != nil || time.Since(start) < 10*time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
