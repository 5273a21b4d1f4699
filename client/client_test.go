package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	for name, tc := range map[string]struct {
		baseURL, token string
		opt            Option
	}{
		"no scheme":            {baseURL: "cards.test", token: testToken},
		"port but no scheme":   {baseURL: "127.0.0.1:8080", token: testToken},
		"other scheme":         {baseURL: "ftp://cards.test", token: testToken},
		"no host":              {baseURL: "https:///api", token: testToken},
		"only a port":          {baseURL: "https://:8080", token: testToken},
		"password":             {baseURL: "https://me:hunter2@cards.test", token: testToken},
		"password, unreadable": {baseURL: "https://me:hunter2@cards.test:port", token: testToken},
		"query":                {baseURL: "https://cards.test?token=hunter2", token: testToken},
		"fragment":             {baseURL: "https://cards.test#api", token: testToken},
		"empty token":          {baseURL: "https://cards.test"},
		"line break in token":  {baseURL: "https://cards.test", token: testToken + "\n"},
		"Bearer in token":      {baseURL: "https://cards.test", token: "Bearer " + testToken},
		"no attempts":          {baseURL: "https://cards.test", token: testToken, opt: WithRetry(0, time.Minute)},
		"no time":              {baseURL: "https://cards.test", token: testToken, opt: WithAttemptTimeout(0)},
		"busy polling":         {baseURL: "https://cards.test", token: testToken, opt: WithPollInterval(0, time.Second)},
		"shrinking interval": {baseURL: "https://cards.test", token: testToken,
			opt: WithPollInterval(time.Minute, time.Second)},
		"empty option": {baseURL: "https://cards.test", token: testToken, opt: Setting{}},
		"bad header": {baseURL: "https://cards.test", token: testToken,
			opt: WithHeader("Authorization", "hunter2")},
		"no middleware": {baseURL: "https://cards.test", token: testToken, opt: WithMiddleware(nil)},
		"nil from middleware": {baseURL: "https://cards.test", token: testToken,
			opt: WithMiddleware(func(http.RoundTripper) http.RoundTripper { return nil })},
		"line break in agent": {baseURL: "https://cards.test", token: testToken, opt: WithUserAgent("a\nb")},
	} {
		t.Run(name, func(t *testing.T) {
			opts := []Option{}
			if tc.opt != nil {
				opts = append(opts, tc.opt)
			}
			_, err := New(tc.baseURL, tc.token, opts...)
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), testToken) {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}

func TestNew_NilOptionIsAnError(t *testing.T) {
	if _, err := New("https://cards.test", testToken, nil); err == nil {
		t.Error("no error")
	}
}

func TestNewFromEnv(t *testing.T) {
	for name, tc := range map[string]struct{ url, token, says string }{
		"both":     {"https://cards.test", testToken, ""},
		"no URL":   {"", testToken, "CARDMINT_URL"},
		"no token": {"https://cards.test", "", "CARDMINT_TOKEN"},
		"bad URL":  {"cards.test", testToken, "scheme"},
	} {
		t.Setenv("CARDMINT_URL", tc.url)
		t.Setenv("CARDMINT_TOKEN", tc.token)
		s := &script{steps: []step{answer(200, "[]")}}
		c, err := NewFromEnv(WithHTTPClient(&http.Client{Transport: s}))
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), testToken) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListCurrencies(t.Context()); err != nil ||
			s.seen[0].URL.String() != "https://cards.test/api/currencies" ||
			s.seen[0].Header.Get("Authorization") != "Bearer "+testToken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNew_SaysItsVersion(t *testing.T) {
	module := func(m debug.Module) func() (*debug.BuildInfo, bool) {
		return func() (*debug.BuildInfo, bool) {
			return &debug.BuildInfo{Deps: []*debug.Module{{Path: "github.com/google/uuid", Version: "v1.6.0"}, &m}}, true
		}
	}
	for want, read := range map[string]func() (*debug.BuildInfo, bool){
		"/0.3.1": module(debug.Module{Path: "github.com/cardmint/cardmint/client", Version: "v0.3.1"}),
		"": module(
			debug.Module{Path: "github.com/cardmint/cardmint/client", Version: "v0.0.0",
				Replace: &debug.Module{Path: "./client"}}),
	} {
		if got := moduleVersion(read); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := moduleVersion(func() (*debug.BuildInfo, bool) { return nil, false }); got != "" {
		t.Error(got)
	}
	c, s := scripted(t, []step{answer(200, "[]")})
	if _, err := c.ListCurrencies(t.Context()); err != nil || s.seen[0].Header.Get("User-Agent") != "cardmint-go" {
		t.Error(err, s.seen[0].Header)
	}
}

func TestNew_KeepsThePathOfTheBaseURL(t *testing.T) {
	for _, base := range []string{"https://cards.test/shop", "https://cards.test/shop/", "https://cards.test/shop/api",
		"https://cards.test/shop/api/"} {
		s := &script{steps: []step{answer(200, "[]")}}
		c, err := New(base, testToken, WithHTTPClient(&http.Client{Transport: s}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListCurrencies(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.seen[0].URL.String(); got != "https://cards.test/shop/api/currencies" {
			t.Errorf("%s: requested %s", base, got)
		}
	}
}

func TestClient_NeverPrintsItsToken(t *testing.T) {
	c, _ := scripted(t, []step{reset}, WithRetry(1, 0))
	_, err := c.ListCurrencies(t.Context())
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&b, verb+verb+verb, c, *c, err)
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("text", "client", c, "value", *c, "err", err)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("json", "client", c, "value", *c, "err", err)
	if strings.Contains(b.String(), testToken) || strings.Contains(b.String(), fmt.Sprintf("%x", testToken)) {
		t.Errorf("printed: %s", b.String())
	}
	if got := fmt.Sprint(c); got != "cardmint client of https://cards.test" {
		t.Errorf("String() = %q", got)
	}
}

func TestCreateCard_SendsExactAmountAndHeaders(t *testing.T) {
	c, s := scripted(t, []step{answer(201, testCard)}, WithUserAgent("shop/1"))
	in := CreateCardRequest{USDAmount: decimal.RequireFromString("150.50"), Currency: "monero"}
	if _, err := c.CreateCard(t.Context(), in, WithIdempotencyKey("order-4711")); err != nil {
		t.Fatal(err)
	}
	if got := s.bodies[0]; got != `{"usd_amount":"150.5","currency":"monero"}` {
		t.Errorf("body %s", got)
	}
	want := http.Header{
		"Accept":          {"application/json, application/problem+json"},
		"Authorization":   {"Bearer " + testToken},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {"order-4711"},
		"User-Agent":      {"shop/1"},
	}
	if diff := difference(want, s.seen[0].Header); diff != "" {
		t.Error(diff)
	}
	if got := s.seen[0].Method + " " + s.seen[0].URL.String(); got != "POST https://cards.test/api/cards" {
		t.Error(got)
	}
}

func TestCard_IsTheSameWhateverFormTheAmountHas(t *testing.T) {
	number := strings.Replace(testCard, `"150.50"`, `150.5`, 1)
	c, _ := scripted(t, []step{answer(201, number), answer(200, testCard)})
	created, err := c.CreateCard(t.Context(), CreateCardRequest{})
	if err != nil {
		t.Fatal(err)
	}
	read, err := c.GetCard(t.Context(), created.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference(created, read); diff != "" {
		t.Error(diff)
	}
	if want := time.Date(2026, 11, 20, 14, 46, 0, 120_000_000, time.UTC); !read.CreatedAt.Equal(want) {
		t.Errorf("created at %v", read.CreatedAt)
	}
}

func TestCard_AmountsNeverPassThroughFloats(t *testing.T) {
	// None of these survives a float64.
	for field, value := range map[string]string{"usd_amount": "9007199254740993.01",
		"amount": "18446744073709551615.123456789012345678"} {
		old := map[string]string{"usd_amount": `"usd_amount":"150.50"`, "amount": `"amount":"0.983456789012"`}[field]
		for _, form := range []string{`"` + value + `"`, value} {
			body := strings.Replace(testCard, old, `"`+field+`":`+form, 1)
			c, _ := scripted(t, []step{answer(200, body)})
			card, err := c.GetCard(t.Context(), uuid.Nil)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]decimal.Decimal{"usd_amount": card.USDAmount, "amount": card.Payment.Amount}[field]
			if got.String() != value {
				t.Errorf("%s %s is read as %s", field, form, got)
			}
		}
	}
}

func TestSimulatePayment_TellsZeroFromDefault(t *testing.T) {
	c, s := scripted(t, []step{answer(200, testCard)})
	for _, in := range []SimulatePaymentRequest{{},
		{Amount: ptr(decimal.RequireFromString("0.5")), Confirmations: ptr(int32(0))}} {
		if _, err := c.SimulatePayment(t.Context(), uuid.Nil, in); err != nil {
			t.Fatal(err)
		}
	}
	if diff := difference([]string{`{}`, `{"amount":"0.5","confirmations":0}`}, s.bodies); diff != "" {
		t.Error(diff)
	}
	if one, other := s.seen[0].Header.Get("Idempotency-Key"), s.seen[1].Header.Get("Idempotency-Key"); one == "" ||
		one == other {
		t.Errorf("the keys are %q and %q", one, other)
	}
}

func TestListCurrencies_RateMayBeUnknown(t *testing.T) {
	c, _ := scripted(t, []step{answer(200, `[{"code":"litecoin","name":"Litecoin","decimals":8,"confirmations_required":6,"rate":null,"rate_at":null},
{"code":"monero","name":"Monero","decimals":12,"confirmations_required":10,"rate":"152.52","rate_at":"2026-11-20T14:45:55.000Z"}]`)})
	got, err := c.ListCurrencies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Currency{
		{Code: "litecoin", Name: "Litecoin", Decimals: 8, ConfirmationsRequired: 6},
		{Code: "monero", Name: "Monero", Decimals: 12, ConfirmationsRequired: 10,
			Rate:   ptr(decimal.RequireFromString("152.52")),
			RateAt: ptr(time.Date(2026, 11, 20, 14, 45, 55, 0, time.UTC))},
	}
	if diff := difference(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCredentials_AreNeitherPrintedNorLogged(t *testing.T) {
	card := Card{
		Credentials: Credentials{CardNumber: "9912345678901232", ExpirationDate: "11/29", SecurityCode: "123", URL: "u",
			URLPassword: "q7GmZ4tKx2Rw"}}
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, verb+verb+verb, card, &card, card.Credentials)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(h).Info("made", "card", card, "pointer", &card, "credentials", card.Credentials)
	}
	for _, secret := range []string{card.Credentials.CardNumber, card.Credentials.URLPassword, "11/29"} {
		if strings.Contains(b.String(), secret) || strings.Contains(b.String(), fmt.Sprintf("%x", secret)) {
			t.Errorf("%q prints credentials: %s", secret, b.String())
		}
	}
	if raw, err := json.Marshal(card); err != nil || !bytes.Contains(raw, []byte(card.Credentials.CardNumber)) {
		t.Errorf("JSON lacks the credentials: %s %v", raw, err)
	}
}

// The SDK depends only on these modules and the standard library, not on the
// service.
func TestPackage_DependsOnNothingElse(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	var progress strings.Builder // of downloads, for example
	list.Stderr = &progress
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &progress)
	}
	want := []string{"github.com/google/uuid", "github.com/shopspring/decimal", "github.com/cardmint/cardmint/client"}
	if diff := difference(want, strings.Fields(string(out))); diff != "" {
		t.Error(diff)
	}
}
