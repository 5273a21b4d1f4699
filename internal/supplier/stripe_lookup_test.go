package supplier_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// many creates n cards of other orders.
func (f *fakeStripe) many(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		c := f.make(
			map[string][]string{"spending_controls[spending_limits][0][amount]": {"5000"},
				"metadata[cardmint_key]": {"another"}, "status": {"active"}})
		c["latest_fraud_warning"] = nil
	}
}

func TestStripe_OldCard_IsFoundByMetadata(t *testing.T) {
	for _, n := range []int{0, 1, 99, 100, 101, 250, 4999} {
		if testing.Short() && n > 250 {
			continue
		}
		f := newFakeStripe(t)
		s := f.supplier(t)
		r, c := f.submitted(t, s, ordered())
		f.many(n)
		f.pass(1000 * time.Hour) // the key is forgotten
		r.Reference = ""
		if a := want(t, s.Lookup, r, issue.Issued); a.Reference != c.id() {
			t.Errorf("found %s", a.Reference)
		}
		pages := slices.Repeat([]string{"list"}, n/100+1)
		if diff := cmp.Diff(append(pages, "retrieve"), f.calls()); diff != "" {
			t.Errorf("behind %d cards: %s", n, diff)
		}
	}
}

func TestStripe_Search_SkipsOlderCards(t *testing.T) {
	f := newFakeStripe(t)
	s := f.supplier(t)
	f.pass(-2 * time.Hour)
	f.many(101)
	f.pass(90 * time.Minute) // half an hour ago, which is within the tolerance for the order's clock
	f.many(99)
	f.pass(30 * time.Minute)
	want(t, s.Lookup, ordered(), issue.Unknown)
	if diff := cmp.Diff([]string{"list"}, f.calls()); diff != "" {
		t.Error(diff)
	}
}

func TestStripe_IncompleteList_IsAnError(t *testing.T) {
	f := newFakeStripe(t)
	s := f.supplier(t)
	r := ordered()
	f.many(150)
	want(t, s.Lookup, r, issue.Unknown)
	for _, fault := range []string{"busy", "wrong key", "no permission", "missing", "failed", "down", "cut", "half", "garbage",
		"empty", "null", "a text", "stuck", "no end", "no card", "other things", "no list", "moved"} {
		for _, faults := range [][]string{{fault}, {"", fault}} { // on the first page, or on the second
			f.fail("list", faults...)
			if fault == "failed" {
				f.fail("list", append(faults[:len(faults)-1], "down")...)
			}
			a, err := s.Lookup(t.Context(), r)
			if err == nil || a != (issue.Answer{}) || f.unfailed("list") > 0 {
				t.Errorf("%s: %s, %v", faults, a.Outcome, err)
			}
			if _, is := errors.AsType[*issue.BusyError](err); is != (fault == "busy") {
				t.Errorf("%s: %v", fault, err)
			}
		}
	}
	f.many(5000)
	if a, err := s.Lookup(t.Context(), r); err == nil ||
		err.Error() != "stripe: list cards: more than 5000 were created since the order" {
		t.Errorf("%s, %v", a.Outcome, err)
	}
}

// A restored database lacks the latest requests. The key is the same, but
// Stripe may have forgotten it.
func TestStripe_RestoredOrder_GetsNoSecondCard(t *testing.T) {
	for _, later := range []time.Duration{0, time.Hour, 23*time.Hour + time.Minute, 24 * time.Hour, 25 * time.Hour,
		1000 * time.Hour} {
		f := newFakeStripe(t)
		s := f.supplier(t)
		r := ordered()
		first := want(t, s.Submit, r, issue.Issued)
		f.pass(later)
		if again := want(t, s.Submit, r, issue.Issued); again != first || f.total() != 1 {
			t.Errorf("%s later: %s, then %s; %d were created", later, first.Reference, again.Reference, f.total())
		}
		f.fail("list", "down")
		if a, err := s.Submit(t.Context(), r); later > 24*time.Hour && err == nil {
			t.Errorf("%s later, after the restore: %s", later, a.Outcome)
		}
		f.fail("list")
		r.Key = "not a UUID"
		f.calls()
		want(t, s.Submit, r, issue.Issued)
		if calls := f.calls(); calls[0] != "list" {
			t.Errorf("unknown age: %v", calls)
		}
	}
}

func TestStripe_CanceledCard_IsReplacedOnlyOnRetry(t *testing.T) {
	for _, withReference := range []bool{true, false} {
		for _, later := range []time.Duration{0, 48 * time.Hour} {
			f := newFakeStripe(t)
			s := f.supplier(t)
			r, c := f.submitted(t, s, ordered())
			if !withReference {
				r.Reference = ""
			}
			c["status"] = "canceled"
			f.pass(later)
			want(t, s.Lookup, r, issue.Declined)
			want(t, s.Submit, r, issue.Declined)
			r.Declines++
			want(t, s.Lookup, r, issue.Unknown)
			second := want(t, s.Submit, r, issue.Issued)
			if second.Reference == c.id() {
				t.Error("returned the canceled card")
			}
			f.pass(48 * time.Hour) // the answer was lost
			if a := want(t, s.Lookup, r, issue.Issued); a != second {
				t.Errorf("lookup returned %s", a.Reference)
			}
			if a := want(t, s.Submit, r, issue.Issued); a != second || f.total() != 2 {
				t.Errorf("the second submit returned %s", a.Reference)
			}
			r.Declines++ // the stored number of declines is too high
			if a := want(t, s.Lookup, r, issue.Issued); a != second {
				t.Errorf("%s is not attributed to its order", second.Reference)
			}
		}
	}
}

func TestStripe_CardOfOtherAccount_IsNotUnknown(t *testing.T) {
	f := newFakeStripe(t)
	r := ordered()
	r.Reference = "ic_1Elsewhere"
	if a, err := f.supplier(t).Lookup(t.Context(), r); err == nil ||
		err.Error() != "stripe: retrieve the card: HTTP status 404, invalid_request_error, code resource_missing, parameter id" {
		t.Errorf("%s, %v", a.Outcome, err)
	}
	for _, odd := range []string{"ic_1/../../balance", "sandbox-1", "ic_"} { // not sent
		r.Reference = odd
		want(t, f.supplier(t).Lookup, r, issue.Unknown)
	}
}

func TestStripe_Cancel(t *testing.T) {
	f := newFakeStripe(t)
	s := f.supplier(t)
	want(t, s.Cancel, ordered(), issue.Unknown)
	for _, withReference := range []bool{true, false} {
		r, c := f.submitted(t, s, ordered())
		if !withReference {
			r.Reference = ""
		}
		for _, fault := range []string{"busy", "wrong key", "cut", "ignored"} {
			f.swap(c, "active")
			f.fail("update", fault)
			if a, err := s.Cancel(t.Context(), r); err == nil {
				t.Errorf("%s: %s", fault, a.Outcome)
			}
		}
		for range 2 {
			a := want(t, s.Cancel, r, issue.Declined)
			if a.Reference != c.id() || a.Reason != "the card was canceled at Stripe" || f.swap(c, "") != "canceled" {
				t.Errorf("%+v, is %s", a, f.swap(c, ""))
			}
		}
		if calls := strings.Join(f.calls(), " "); strings.Count(calls, "update") != 5 {
			t.Errorf("calls: %s", calls)
		}
		f.swap(c, "active")
		c["metadata"] = map[string]string{}
		r.Reference = c.id()
		if a, err := s.Cancel(t.Context(), r); err == nil || f.swap(c, "") != "active" {
			t.Errorf("card of another order: %s, now %s", a.Outcome, f.swap(c, ""))
		}
	}
}

func TestStripe_Offers(t *testing.T) {
	const balance = `{"object":"balance","available":[{"amount":7,"currency":"usd"}],"issuing":{"available":[{"amount":5,"currency":"eur"},{"amount":75000,"currency":"usd"}]}}`
	const active = `{"id":"` + holder + `","status":"active","requirements":{"disabled_reason":null}}`
	for name, tt := range map[string]struct {
		holder, balance string
		want            []card.Offer
		err             string
	}{
		"all of the balance": {active, balance,
			[]card.Offer{{Min: 1, Max: 750_00, Left: card.Unlimited, Total: 750_00}}, ""},
		"no requirements": {`{"id":"` + holder + `","status":"active"}`, balance,
			[]card.Offer{{Min: 1, Max: 750_00, Left: card.Unlimited, Total: 750_00}}, ""},
		"an inactive cardholder":       {strings.Replace(active, `"active"`, `"inactive"`, 1), balance, nil, ""},
		"a blocked cardholder":         {strings.Replace(active, `"active"`, `"blocked"`, 1), balance, nil, ""},
		"cardholder with requirements": {strings.Replace(active, "null", `"requirements.past_due"`, 1), balance, nil, ""},
		"another cardholder": {`{"id":"ich_2","status":"active"}`, balance, nil,
			"stripe: cardholder: the answer is not a cardholder"},
		"no cardholder":    {`{}`, balance, nil, "stripe: cardholder: the answer is not a cardholder"},
		"no money":         {active, strings.Replace(balance, "75000", "0", 1), nil, ""},
		"negative balance": {active, strings.Replace(balance, "75000", "-1", 1), nil, ""},
		"no dollars": {active,
			strings.Replace(balance, `75000,"currency":"usd"`, `75000,"currency":"gbp"`, 1), nil, ""},
		"no Issuing": {active, `{"object":"balance"}`, nil,
			"stripe: balance: the answer has no Issuing balance"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeStripe(t)
			f.holder, f.balance = tt.holder, tt.balance
			got, err := f.supplier(t).Offers(t.Context())
			if text := ""; err != nil {
				text = err.Error()
				if text != tt.err {
					t.Errorf("%v", err)
				}
			} else if tt.err != "" {
				t.Error("no error")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || f.total() > 0 {
				t.Errorf("%d were created; %s", f.total(), diff)
			}
		})
	}
	f := newFakeStripe(t)
	for _, operation := range []string{"holder", "balance"} {
		f.fail(operation, "busy")
		if got, err := f.supplier(t).Offers(t.Context()); got != nil || !isBusy(err) {
			t.Errorf("%s: %v, %v", operation, got, err)
		}
	}
}

func isBusy(err error) bool {
	_, is := errors.AsType[*issue.BusyError](err)
	return is
}
