package supplier_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
)

// ordered returns the request of a new order.
func ordered() issue.Request {
	return issue.Request{Key: uuid.Must(uuid.NewV7()).String(), USD: 150_50}
}

func TestStripe_Order_IsVirtualCardWithLimit(t *testing.T) {
	f := newFakeStripe(t)
	s := f.supplier(t)
	r := ordered()
	a := want(t, s.Submit, r, issue.Issued)
	if diff := cmp.Diff([]string{"create", "retrieve"}, f.calls()); diff != "" {
		t.Errorf("calls: %s", diff)
	}
	if diff := cmp.Diff(url.Values{
		"cardholder": {holder}, "currency": {"usd"}, "type": {"virtual"}, "status": {"active"},
		"spending_controls[spending_limits][0][amount]":   {"15050"},
		"spending_controls[spending_limits][0][interval]": {"all_time"},
		"metadata[cardmint_key]":                          {r.Key}, "metadata[cardmint_usd_cents]": {"15050"},
		"metadata[cardmint_attempt]": {"0"},
	}, f.form); diff != "" {
		t.Errorf("the order: %s", diff)
	}
	c := f.all()[0]
	got := a.Credentials
	a.Credentials = card.Credentials{}
	if diff := cmp.Diff(issue.Answer{Outcome: issue.Issued, Reference: c.id(), USD: 150_50}, a); diff != "" {
		t.Errorf("the answer: %s", diff)
	}
	password := got.URLPassword.Reveal()
	if flaw := got.Flaw(time.Now()); flaw != "" || got.CardNumber.Reveal() != c["number"] ||
		got.SecurityCode.Reveal() != c["cvc"] || len(password) != 26 ||
		got.ExpirationDate.Reveal() != "03/"+strconv.Itoa(time.Now().Year() + 3)[2:] ||
		got.URL.Reveal() != "https://cards.example/show/"+c.id() {
		t.Errorf("the credentials: %s %s", flaw, got.URL.Reveal())
	}
	if found := want(t, s.Lookup, r, issue.Issued); found.Credentials != got || found.Reference != c.id() {
		t.Error("the lookup returned another card")
	}
	if s.Name() != "stripe" || s.KeyRetention() >= 24*time.Hour || s.KeyRetention() < 20*time.Hour || s.Live() {
		t.Errorf("%s keeps keys for %s, live: %t", s.Name(), s.KeyRetention(), s.Live())
	}
}

// The operator's page computes the same password, so it must never change.
func TestStripe_PagePassword_NeverChanges(t *testing.T) {
	f := newFakeStripe(t)
	if a := want(t, f.supplier(t).Submit, ordered(), issue.Issued); a.Reference != "ic_1Fake1" ||
		a.Credentials.URLPassword.Reveal() != "oy2foy6myh4pdu2oibi5cj52rq" {
		t.Errorf("%s has %s", a.Reference, a.Credentials.URLPassword.Reveal())
	}
}

func TestStripe_SendsOnceWithoutTelemetry(t *testing.T) {
	t.Setenv("CLAUDECODE", "1") // stripe-go sends what it finds in the environment
	f := newFakeStripe(t)
	f.Config.SetKeepAlivesEnabled(true)
	s := f.supplier(t)
	r := ordered()
	for range 2 { // telemetry would be about the previous call
		want(t, s.Lookup, r, issue.Unknown)
	}
	h := f.last.Header
	if diff := cmp.Diff(
		http.Header{"Authorization": {"Bearer rk_test_123"}, "Content-Type": {"application/x-www-form-urlencoded"},
			"User-Agent": {"cardmint"}, "Stripe-Version": h["Stripe-Version"],
			"Accept-Encoding": {"gzip"}}, h); diff != "" || h.Get("Stripe-Version") == "" {
		t.Errorf("headers: %s", diff)
	}
	f.calls()
	for _, fault := range []string{"locked", "in use", "failed", "down"} {
		f.fail("create", fault)
		_, err := s.Submit(t.Context(), ordered())
		if calls := f.calls(); err == nil || len(calls) != 1 {
			t.Errorf("%s: %v, after %v", fault, err, calls)
		}
	}
	// net/http repeats requests with a key on reused connections. The key stays
	// the same.
	r = ordered()
	f.fail("create", "cut")
	want(t, s.Submit, r, issue.Issued)
	if calls := f.calls(); len(calls) != 3 || len(f.of(r.Key)) != 1 {
		t.Errorf("%d cards after %v", len(f.of(r.Key)), calls)
	}
}

func TestStripe_Answers(t *testing.T) {
	for fault, tt := range map[string]struct {
		reason    string // "" for an error
		waits     string // no card was created, and the same request is repeated later
		temporary bool
		err       string
		made      bool
	}{
		"invalid": {
			waits: "Stripe refuses requests: HTTP status 400, invalid_request_error, code parameter_missing, parameter spending_controls[spending_limits][0][amount]"},
		"no code": {waits: "Stripe refuses requests: HTTP status 400, invalid_request_error"},
		"no holder": {
			waits: "Stripe refuses requests: HTTP status 400, invalid_request_error, code cardholder_phone_number_required, parameter cardholder"},
		"unavailable": {waits: "Stripe refuses requests: HTTP status 402, invalid_request_error"},
		"too large":   {reason: "Stripe declined, invalid_request_error, code amount_too_large"},
		"declined":    {reason: "Stripe declined, card_error, code card_declined, decline code do_not_honor"},
		"no funds": {reason: "Stripe declined, card_error, code card_declined, decline code insufficient_funds",
			temporary: true},
		"no balance":      {reason: "Stripe declined, invalid_request_error, code balance_insufficient", temporary: true},
		"busy":            {err: "the supplier is busy"},
		"busy, no JSON":   {err: "the supplier is busy"},
		"locked":          {err: "the supplier is busy"},
		"in use":          {err: "HTTP status 409, idempotency_error, code idempotency_key_in_use"},
		"wrong key":       {err: "HTTP status 401, invalid_request_error"},
		"no permission":   {err: "HTTP status 403, invalid_request_error"},
		"missing":         {err: "HTTP status 404, invalid_request_error, code resource_missing, parameter id"},
		"moved":           {err: "HTTP status 302"},
		"no content":      {err: "HTTP status 204"},
		"proxy's 400":     {err: "HTTP status 400"},
		"proxy's 402":     {err: "HTTP status 402"},
		"failed":          {err: "HTTP status 500, api_error"},
		"created, failed": {err: "HTTP status 500, api_error", made: true},
		"down":            {err: "HTTP status 503"},
		"unread":          {err: "the connection was lost, or the answer is not from Stripe"},
		"cut":             {err: "the connection was lost, or the answer is not from Stripe", made: true},
		"half":            {err: "the connection was lost, or the answer is not from Stripe", made: true},
		"garbage":         {err: "the connection was lost, or the answer is not from Stripe", made: true},
		"empty":           {err: "the answer is not a card", made: true},
		"endless":         {err: "the answer is longer than 8388608 bytes", made: true},
		"null":            {err: "the answer is not a card", made: true},
		"a text":          {err: "the answer is not a card", made: true},
	} {
		t.Run(fault, func(t *testing.T) {
			f := newFakeStripe(t)
			s := f.supplier(t)
			r := ordered()
			f.fail("create", fault, fault)
			for range 2 { // the answer to a key is the same for a day, unless the request was not executed
				a, err := s.Submit(t.Context(), r)
				if tt.reason != "" {
					if diff := cmp.Diff(issue.Answer{Outcome: issue.Declined, Reason: tt.reason, Temporary: tt.temporary},
						a); diff != "" || err != nil {
						t.Errorf("%v %s", err, diff)
					}
					continue
				}
				if tt.waits != "" {
					busy, is := errors.AsType[*issue.BusyError](err)
					if !is || busy.Error() != tt.waits || a != (issue.Answer{}) {
						t.Errorf("%+v, %v; want a wait, because %s", a, err, tt.waits)
					}
					continue
				}
				if err == nil || err.Error() != "stripe: create a card: "+tt.err || a != (issue.Answer{}) {
					t.Errorf("%+v, %v; want %s", a, err, tt.err)
				}
				busy, is := errors.AsType[*issue.BusyError](err)
				if is != (tt.err == "the supplier is busy") || is && busy.After != 7*time.Second {
					t.Errorf("busy: %t %+v", is, busy)
				}
			}
			found, err := s.Lookup(t.Context(), r)
			if cards := f.of(r.Key); err != nil || (found.Outcome == issue.Issued) != tt.made || (len(cards) == 1) != tt.made ||
				len(cards) > 1 {
				t.Errorf("found %s, %v, of %d", found.Outcome, err, len(cards))
			}
			r.Declines++ // after a clear answer another key is used
			if a, err := s.Submit(t.Context(), r); tt.reason != "" && (err != nil || a.Outcome != issue.Issued) {
				t.Errorf("with another key: %s, %v", a.Outcome, err)
			}
		})
	}
}

// A key that was used with other parameters has created some card.
func TestStripe_IdempotencyError_IsUnclear(t *testing.T) {
	f := newFakeStripe(t)
	s := f.supplier(t)
	r, _ := f.submitted(t, s, ordered())
	r.USD++
	if a, err := s.Submit(t.Context(), r); err == nil ||
		!strings.HasSuffix(err.Error(), "HTTP status 400, idempotency_error") {
		t.Errorf("%s, %v", a.Outcome, err)
	}
}

func TestStripe_UnreadableCard_IsNotLost(t *testing.T) {
	for _, fault := range []string{"busy", "wrong key", "missing", "failed", "cut", "half", "garbage", "empty", "null",
		"a text"} {
		f := newFakeStripe(t)
		s := f.supplier(t)
		r := ordered()
		f.fail("retrieve", fault, fault)
		a := want(t, s.Submit, r, issue.Pending)
		if a.Reference != f.all()[0].id() {
			t.Errorf("%s: the reference is %q", fault, a.Reference)
		}
		r.Reference = a.Reference
		if a, err := s.Lookup(t.Context(), r); err == nil || strings.Contains(err.Error(), stripeCanary) {
			t.Errorf("%s: looked up: %s, %v", fault, a.Outcome, err)
		}
		f.calls()
		want(t, s.Lookup, r, issue.Issued)
		if diff := cmp.Diff([]string{"retrieve"}, f.calls()); diff != "" {
			t.Errorf("%s: looked up by %s", fault, diff)
		}
	}
}

func TestStripe_Judge(t *testing.T) {
	limits := func(c fakeCard, limits ...map[string]any) {
		c["spending_controls"] = map[string]any{"spending_limits": limits}
	}
	const otherLimits = "the card at Stripe has other spending limits than one for all time"
	for name, tt := range map[string]struct {
		change func(c fakeCard)
		want   issue.Answer // without reference and credentials
	}{
		"as ordered": {func(fakeCard) {}, issue.Answer{Outcome: issue.Issued, USD: 150_50}},
		"card of another order": {func(c fakeCard) { c["metadata"] = map[string]string{"cardmint_key": "x"} }, issue.Answer{
			Outcome: issue.Issued, Flaw: "the card at Stripe belongs to another order"}},
		"canceled": {func(c fakeCard) { c["status"] = "canceled" }, issue.Answer{
			Outcome: issue.Declined, Reason: "the card was canceled at Stripe"}},
		"inactive": {func(c fakeCard) { c["status"] = "inactive" }, issue.Answer{
			Outcome: issue.Issued, Flaw: "the card is not active at Stripe: activate it there, then retry"}},
		"no status": {func(c fakeCard) { delete(c, "status") }, issue.Answer{
			Outcome: issue.Issued, Flaw: "the card is not active at Stripe: activate it there, then retry"}},
		"physical": {func(c fakeCard) { c["type"] = "physical" }, issue.Answer{
			Outcome: issue.Issued, Flaw: "the card at Stripe is not virtual"}},
		"euros": {func(c fakeCard) { c["currency"] = "eur" }, issue.Answer{
			Outcome: issue.Issued, Flaw: "the card at Stripe is not in US dollars"}},
		"another limit": {func(c fakeCard) { c.limit()["amount"] = 150_49 }, issue.Answer{
			Outcome: issue.Issued, USD: 150_49}},
		"no limit": {func(c fakeCard) { limits(c) }, issue.Answer{Outcome: issue.Issued, Flaw: otherLimits}},
		"no controls": {func(c fakeCard) { c["spending_controls"] = nil }, issue.Answer{
			Outcome: issue.Issued, Flaw: otherLimits}},
		"no amount": {func(c fakeCard) { delete(c.limit(), "amount") }, issue.Answer{
			Outcome: issue.Issued, Flaw: otherLimits}},
		"a daily limit": {func(c fakeCard) { c.limit()["interval"] = "daily" }, issue.Answer{
			Outcome: issue.Issued, Flaw: otherLimits}},
		"limited to categories": {func(c fakeCard) { c.limit()["categories"] = []string{"bakeries"} }, issue.Answer{
			Outcome: issue.Issued, Flaw: otherLimits}},
		"two limits": {func(c fakeCard) { limits(c, c.limit(), c.limit()) }, issue.Answer{
			Outcome: issue.Issued, Flaw: otherLimits}},
		"fraud warning": {func(c fakeCard) { c["latest_fraud_warning"] = map[string]any{"type": "card_testing_exposure"} },
			issue.Answer{Outcome: issue.Issued, Flaw: "Stripe warns that the card's details are known to others"}},
		"no number": {func(c fakeCard) { delete(c, "number") }, issue.Answer{
			Outcome: issue.Issued, Flaw: "Stripe left out the card's number or security code: the API key may not read them"}},
		"no code": {func(c fakeCard) { c["cvc"] = "" }, issue.Answer{
			Outcome: issue.Issued, Flaw: "Stripe left out the card's number or security code: the API key may not read them"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeStripe(t)
			s := f.supplier(t)
			r, c := f.submitted(t, s, ordered())
			tt.change(c)
			// the replayed answer is outdated
			for call, ask := range map[string]call{"submitted": s.Submit, "looked up": s.Lookup} {
				a, err := ask(t.Context(), r)
				if err != nil || a.Reference != c.id() || (a.Credentials == card.Credentials{}) != (a.USD == 0) {
					t.Errorf("%s: %v, reference %s", call, err, a.Reference)
				}
				a.Credentials, a.Reference = card.Credentials{}, ""
				if diff := cmp.Diff(tt.want, a); diff != "" {
					t.Errorf("%s: %s", call, diff)
				}
			}
		})
	}
	for _, odd := range []int{0, 13, -1} {
		f := newFakeStripe(t)
		s := f.supplier(t)
		r, c := f.submitted(t, s, ordered())
		c["exp_month"] = odd
		if a := want(t, s.Lookup, r, issue.Issued); a.Credentials.Flaw(time.Now()) == "" {
			t.Errorf("month %d: %s", odd, a.Credentials.ExpirationDate.Reveal())
		}
	}
}

func TestStripe_Expiry(t *testing.T) {
	for _, tt := range []struct {
		year, month int
		want        card.Secret // "" if no card can have it
	}{
		{2030, 1, "01/30"}, {2030, 12, "12/30"}, {2099, 12, "12/99"},
		{2030, 0, ""}, {2030, 13, ""}, {1999, 12, ""}, {2100, 1, ""},
	} {
		f := newFakeStripe(t)
		s := f.supplier(t)
		r, c := f.submitted(t, s, ordered())
		c["exp_year"], c["exp_month"] = tt.year, tt.month
		if a := want(t, s.Lookup, r, issue.Issued); a.Credentials.ExpirationDate != tt.want {
			t.Errorf("%d/%d: %q, want %q", tt.month, tt.year, a.Credentials.ExpirationDate.Reveal(), tt.want.Reveal())
		}
	}
}

func TestStripe_Errors_ContainNoTextFromStripe(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = out, out
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	f := newFakeStripe(t)
	s := f.supplier(t)
	r, _ := f.submitted(t, s, ordered())
	calls := map[string]func() (issue.Answer, error){
		"create":   func() (issue.Answer, error) { return s.Submit(t.Context(), ordered()) },
		"list":     func() (issue.Answer, error) { return s.Lookup(t.Context(), issue.Request{Key: r.Key}) },
		"retrieve": func() (issue.Answer, error) { return s.Lookup(t.Context(), r) },
		"update":   func() (issue.Answer, error) { return s.Cancel(t.Context(), r) },
		"holder":   func() (issue.Answer, error) { _, err := s.Offers(t.Context()); return issue.Answer{}, err },
		"balance":  func() (issue.Answer, error) { _, err := s.Offers(t.Context()); return issue.Answer{}, err },
	}
	tried := 0
	for _, faults := range []map[string]struct {
		status int
		body   string
	}{refusals, keptErrors, {"garbage": {}, "half": {}, "empty": {}, "null": {}, "a text": {}}} {
		for fault := range faults {
			for operation, ask := range calls {
				f.failOnly(operation, fault)
				a, err := ask()
				tried++
				if _, kept := keptErrors[fault]; err == nil && a.Outcome != issue.Declined && !(kept && operation != "create") {
					t.Errorf("%s, %s: no error, %s", operation, fault, a.Outcome)
				}
				if text := a.Reason + a.Flaw; strings.Contains(text, stripeCanary) || err != nil &&
					strings.Contains(err.Error(), stripeCanary) {
					t.Errorf("%s, %s: %v, %s", operation, fault, err, text)
				}
			}
		}
	}
	if printed, err := os.ReadFile(out.Name()); err != nil || len(printed) > 0 || tried < 100 {
		t.Errorf("%d cases, %v; printed %s", tried, err, printed)
	}
}

func TestStripe_UntrustedServer_IsRejected(t *testing.T) {
	asked := 0
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	other.StartTLS()
	defer other.Close()
	s, err := supplier.NewStripe(
		supplier.StripeConfig{Key: "rk_live_1", Cardholder: holder, URL: other.URL, Page: "https://cards.example",
			PageSecret: pageSecret})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Submit(t.Context(), ordered()); err == nil ||
		err.Error() != "stripe: create a card: the certificate is not trusted" || asked > 0 {
		t.Errorf("%v, %d requests", err, asked)
	}
	if !s.Live() {
		t.Error("the key is not for testing")
	}
}

func TestStripe_NoAnswer_ReturnsReason(t *testing.T) {
	f := newFakeStripe(t)
	s := f.supplier(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the process ends")
	cancel(cause)
	if a, err := s.Submit(ctx, ordered()); !errors.Is(err, cause) {
		t.Errorf("%s, %v", a.Outcome, err)
	}
	f.Close()
	if a, err := s.Submit(t.Context(), ordered()); err == nil ||
		err.Error() != "stripe: create a card: the connection failed" {
		t.Errorf("%s, %v", a.Outcome, err)
	}
}

func TestStripeConfig_Invalid_IsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*supplier.StripeConfig)
		want   string
	}{
		"fine":     {func(*supplier.StripeConfig) {}, ""},
		"loopback": {func(c *supplier.StripeConfig) { c.URL, c.Insecure = "http://[::1]:1", true }, ""},
		"no key": {func(c *supplier.StripeConfig) {
			c.Key = ""
		}, "stripe: the API key must begin with rk_live_ or rk_test_"},
		"a line break": {func(c *supplier.StripeConfig) {
			c.Key += "\n"
		}, "stripe: the API key must begin with rk_live_ or rk_test_"},
		"a secret key": {func(c *supplier.StripeConfig) {
			c.Key = "sk_live_1"
		}, "stripe: the API key must be a restricted one, rk_live_...: a secret key may do everything with the account"},
		"no cardholder": {func(c *supplier.StripeConfig) {
			c.Cardholder = ""
		}, "stripe: the cardholder must be an id such as ich_1MsKAB2eZvKYlo2C3eZ2BdvK"},
		"a path": {func(c *supplier.StripeConfig) {
			c.Cardholder = "ich_1/../x"
		}, "stripe: the cardholder must be an id such as ich_1MsKAB2eZvKYlo2C3eZ2BdvK"},
		"32 bytes": {func(c *supplier.StripeConfig) { c.PageSecret = "12345678901234567890123456789012" }, ""},
		"a short secret": {func(c *supplier.StripeConfig) {
			c.PageSecret = "1234567890123456789012345678901"
		}, "stripe: the secret of the page must have at least 32 bytes"},
		"an http page": {func(c *supplier.StripeConfig) {
			c.Page = "http://cards.example"
		}, "stripe: the page must be an https address without user, query and fragment"},
		"a query": {func(c *supplier.StripeConfig) {
			c.Page = "https://cards.example?a=b"
		}, "stripe: the page must be an https address without user, query and fragment"},
		"no page": {func(c *supplier.StripeConfig) {
			c.Page = ""
		}, "stripe: the page must be an https address without user, query and fragment"},
		"http": {func(c *supplier.StripeConfig) {
			c.URL = "http://127.0.0.1"
		}, "stripe: the address of the API must begin with https://"},
		"not loopback": {func(c *supplier.StripeConfig) {
			c.URL, c.Insecure = "http://192.0.2.1", true
		}, "stripe: the address of the API must begin with https://"},
		"a name": {func(c *supplier.StripeConfig) {
			c.URL, c.Insecure = "http://localhost", true
		}, "stripe: the address of the API must begin with https://"},
		"a user": {func(c *supplier.StripeConfig) {
			c.URL = "https://u:p@api.stripe.com"
		}, "stripe: the address of the API must have no user, query or fragment"},
		"no address": {func(c *supplier.StripeConfig) {
			c.URL = "https://"
		}, "stripe: the address of the API must have no user, query or fragment"},
	} {
		c := supplier.StripeConfig{Key: "rk_live_1", Cardholder: holder, Page: "https://cards.example/show",
			PageSecret: pageSecret}
		tt.change(&c)
		got := ""
		if _, err := supplier.NewStripe(c); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
