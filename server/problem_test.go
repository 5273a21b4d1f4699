package server_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

func TestProblem_ListsAllErrors(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	const id = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	for name, x := range map[string]struct {
		method, target, body string
		headers, pointers    []string
	}{
		"createCard": {"POST", "/api/cards", `{"usd_amount":49,"currency":"x","note":1,"a/b":2}`,
			[]string{"Idempotency-Key", "not visible"},
			[]string{"/usd_amount", "/currency", "/note", "/a~1b", "header/Idempotency-Key"}},
		"createCard without fields": {"POST", "/api/cards", `{}`, nil, []string{"/usd_amount", "/currency"}},
		"listCards": {"GET", "/api/cards?status=paid&limit=0&cursor=", "", nil,
			[]string{"query/status", "query/limit", "query/cursor"}},
		"listCards, each twice": {"GET",
			"/api/cards?limit=1&limit=2&status=generated&status=generated&cursor=AZqhyfhofO-OTpscl_sdiA&cursor=AZqhyfhofO-OTpscl_sdiA", "", nil,
			[]string{"query/status", "query/limit", "query/cursor"}},
		"getCard": {"GET", "/api/cards/" + strings.ToUpper(id) + "0", "", nil, []string{"path/uuid"}},
		"simulatePayment": {"POST", "/api/sandbox/cards/none/payments", `{"amount":"-1","confirmations":-1,"x":1}`, nil,
			[]string{"path/uuid", "/amount", "/confirmations", "/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := d.send(t, x.method, x.target, token, x.body, x.headers...).invalid(t, x.pointers...)
			if n := strconv.Itoa(len(x.pointers)); !strings.HasPrefix(p.Detail, n+" thing") {
				t.Errorf("the detail has no count: %q", p.Detail)
			}
		})
	}
}

func TestProblem_InvalidParameters_AreListed(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for _, query := range []string{
		"limit=", "limit=0", "limit=-1", "limit=1001", "limit=1.5", "limit=1.0", "limit=1e2", "limit=0x10", "limit=1_0",
		"limit=ten", "limit=null", "limit=true",
		"limit=99999999999", "limit=99999999999999999999", "limit=%205", "limit=5%00", "limit=%D9%A5",
		"status=", "status=paid", "status=Generated", "status=generated%20", "status=generated,awaiting_payment",
		"status=%00",
		"cursor=", "cursor=a", "cursor=AAAA", "cursor=AZqhyfhofO-OTpscl_sdi", "cursor=AZqhyfhofO-OTpscl_sdiAA",
		"cursor=AZqhyfhofO-OTpscl_sdiA==",
		"cursor=AZqhyfhofO%2BOTpscl/sdiA", "cursor=019aa1c9-f868-7cef-8e4e-9b1c97fb1d88",
		"cursor=" + strings.Repeat("A", 65), "cursor=%00", "cursor=%FF",
	} {
		t.Run(query, func(t *testing.T) {
			name, _, _ := strings.Cut(query, "=")
			p := d.send(t, http.MethodGet, "/api/cards?"+query, token, "").refused(t, http.StatusUnprocessableEntity,
				"invalid_request")
			for _, e := range p.Errors {
				equal(t, "pointer", e.Pointer, "query/"+name)
			}
		})
	}
	for _, id := range []string{
		"1", "019aa1c9f8687cef8e4e9b1c97fb1d88", "{019aa1c9-f868-7cef-8e4e-9b1c97fb1d88}",
		"urn:uuid:019aa1c9-f868-7cef-8e4e-9b1c97fb1d88",
		"019aa1c9-f868-7cef-8e4e-9b1c97fb1d8g", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88%20",
		"019aa1c9-f868-7cef-8e4e-9b1c97fb1d8%00", "*", "..",
		"%F0%9F%8E%89", "019aa1c9_f868_7cef_8e4e_9b1c97fb1d88", "1%27%20OR%20%271%27=%271",
	} {
		t.Run(id, func(t *testing.T) {
			d.serve(t, http.MethodGet, "/api/cards/"+id, token, "").invalid(t, "path/uuid")
			d.serve(t, http.MethodPost, "/api/sandbox/cards/"+id+"/payments", token, "").invalid(t, "path/uuid")
		})
	}
}

func TestProblem_NeverQuotesAValue(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	const canary = "S3cr3t"
	for name, a := range map[string]answer{
		"amount, currency": d.send(t, "POST", "/api/cards", token, `{"usd_amount":"`+canary+`","currency":"`+canary+`"}`),
		"value of unknown": d.send(t, "POST", "/api/cards", token,
			`{"usd_amount":50,"currency":"monero","note":"`+canary+`"}`),
		"objects": d.send(t, "POST", "/api/cards", token,
			`{"usd_amount":{"a":"`+canary+`"},"currency":["`+canary+`"]}`),
		"malformed":       d.send(t, "POST", "/api/cards", token, `{"usd_amount":"`+canary+`",`+canary+`}`),
		"a string":        d.send(t, "POST", "/api/cards", token, `"`+canary+`"`),
		"media type":      d.send(t, "POST", "/api/cards", token, orderBody("50"), "Content-Type", "text/"+canary),
		"idempotency key": d.send(t, "POST", "/api/cards", token, orderBody("50"), "Idempotency-Key", canary+" "+canary),
		"long key": d.send(t, "POST", "/api/cards", token, orderBody("50"), "Idempotency-Key",
			strings.Repeat(canary, 43)),
		"two keys":     d.send(t, "POST", "/api/cards", token, orderBody("50"), "Idempotency-Key", canary+again+canary),
		"query":        d.send(t, "GET", "/api/cards?limit="+canary+"&status="+canary+"&cursor="+canary, token, ""),
		"query, twice": d.send(t, "GET", "/api/cards?cursor="+canary+"&cursor="+canary, token, ""),
		"uuid":         d.send(t, "GET", "/api/cards/"+canary, token, ""),
		"path":         d.send(t, "GET", "/"+canary, token, ""),
		"token":        d.send(t, "GET", "/api/cards", "cm_test_"+canary, ""),
		"scheme":       d.send(t, "GET", "/api/cards", "", "", "Authorization", canary+" "+token),
		"payment": d.send(t, "POST", "/api/sandbox/cards/"+canary+"/payments", token,
			`{"amount":"`+canary+`","confirmations":"`+canary+`"}`),
		"method":             d.send(t, canary, "/api/cards", token, ""),
		"header of no worry": d.send(t, "GET", "/api/cards?limit=x", token, "", "X-Request-Id", canary+"!"),
	} {
		if a.status < 400 || strings.Contains(a.body, canary) || strings.Contains(a.body, token) {
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
	}
}

// Every operation needs the store, if only to authenticate.
func TestStoreIsDown_EveryOperation_HasRetryAfter(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	c := d.client(t, token)
	need(t, d.store.Close())
	for template, item := range contract().Paths.Map() {
		for method := range item.Operations() {
			path := strings.ReplaceAll(template, "{uuid}", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")
			body := map[string]string{"POST": orderBody("50")}[method]
			t.Run(method+" "+path, func(t *testing.T) { unavailable(t, d.send(t, method, path, token, body)) })
		}
	}
	_, err := c.ListCurrencies(t.Context())
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != client.ProblemCodeUnavailable || refused.RetryAfter != 5*time.Second {
		t.Errorf("the client gets %v", err)
	}
	d.send(t, http.MethodGet, "/livez", "", "").want(t, http.StatusOK)
	if !strings.Contains(d.log.String(), "database is closed") {
		t.Error("the log does not name the cause")
	}
}

// The same, with a cached token, so that the operation itself fails.
func TestStoreGoesDown_EveryOperation_HasRetryAfter(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"))
	need(t, d.store.Close())
	one := made.header.Get("Location")
	unavailable(t, d.send(t, "GET", "/api/cards", token, ""))
	unavailable(t, d.send(t, "GET", "/api/cards?limit=2", token, ""))
	unavailable(t, d.send(t, "GET", one, token, ""))
	unavailable(t, d.send(t, "POST", "/api/cards", token, orderBody("50")))
	unavailable(t, d.send(t, "POST", "/api/cards", token, orderBody("50"), "Idempotency-Key", "k"))
	unavailable(t, d.send(t, "POST", "/api/sandbox"+strings.TrimPrefix(one, "/api")+"/payments", token, ""))
	d.send(t, "GET", "/api/currencies", token, "").want(t, http.StatusOK) // served from memory
}

func unavailable(t *testing.T, a answer) {
	t.Helper()
	a.refused(t, http.StatusServiceUnavailable, "unavailable")
	equal(t, "Retry-After", a.header.Get("Retry-After"), "5")
	if strings.Contains(a.body, "sql") || strings.Contains(a.body, "closed") {
		t.Errorf("the response contains text for the log only: %s", a.body)
	}
}

func TestCreateCard_NoRateOrAddress_IsUnavailable(t *testing.T) {
	t.Parallel()
	none, err := rate.NewFixed(nil, time.Now)
	need(t, err)
	d := deploy(t, setup{rates: none})
	token := d.token(t)
	a := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"))
	a.refused(t, http.StatusServiceUnavailable, "rate_unavailable")
	equal(t, "Retry-After", a.header.Get("Retry-After"), "10")
	// Errors of the request take precedence: a retry would not help.
	d.send(t, http.MethodPost, "/api/cards", token, orderBody("49")).invalid(t, "/usd_amount")
	list, err := d.client(t, token).ListCurrencies(t.Context())
	need(t, err)
	if len(list) != 1 || list[0].Rate != nil || list[0].RateAt != nil {
		t.Errorf("currencies without a rate: %+v", list)
	}

	d = deploy(t, setup{wrap: func(s *store.Store) hooked {
		return hooked{Store: s, takeAddresses: func() ([]string, error) { return nil, nil }}
	}})
	a = d.send(t, http.MethodPost, "/api/cards", d.token(t), orderBody("50"))
	a.refused(t, http.StatusServiceUnavailable, "address_unavailable")
	equal(t, "Retry-After", a.header.Get("Retry-After"), "5")
}

func TestFailure_IsLogged_NotDisclosed(t *testing.T) {
	t.Parallel()
	const internal = "pq: password authentication failed for user cardmint"
	fail := func(context.Context, uuid.UUID) (*card.Card, error) { return nil, errors.New(internal) }
	d := deploy(t, setup{wrap: func(s *store.Store) hooked { return hooked{Store: s, cardByUUID: fail} }})
	a := d.send(t, http.MethodGet, "/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", d.token(t), "")
	p := a.refused(t, http.StatusInternalServerError, "internal")
	if strings.Contains(a.body, "pq") || strings.Contains(a.body, "password") {
		t.Errorf("the response discloses: %s", a.body)
	}
	found := false
	for _, e := range d.log.entries(t) {
		found = found || e["error"] == internal && e["request_id"] == p.RequestID
	}
	if !found {
		t.Errorf("the log does not name the cause for %s:\n%s", p.RequestID, d.log)
	}
}

func TestPanic_IsInternalError_DisclosesNothing(t *testing.T) {
	t.Parallel()
	const secret = "4111111111111111"
	d := deploy(t, setup{wrap: func(s *store.Store) hooked {
		return hooked{Store: s, cardByUUID: func(context.Context, uuid.UUID) (*card.Card, error) {
			panic("card number " + secret)
		}}
	}})
	token := d.token(t)
	a := d.send(t, http.MethodGet, "/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", token, "")
	a.refused(t, http.StatusInternalServerError, "internal")
	if strings.Contains(a.body+d.log.String(), secret) {
		t.Error("the panic value is disclosed")
	}
	if !strings.Contains(d.log.String(), `"msg":"panic"`) || !strings.Contains(d.log.String(), "problem_test.go") {
		t.Errorf("the log has no stack:\n%s", d.log)
	}
	d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK)
}

// A client can't handle a code that it does not know.
func TestCodes_AreEqualInCardSpecAndClient(t *testing.T) {
	t.Parallel()
	var inDomain, inContract []string
	for _, e := range card.PublicErrors() {
		inDomain = append(inDomain, e.Code)
	}
	for _, v := range contract().Components.Schemas["ProblemCode"].Value.Enum {
		inContract = append(inContract, v.(string))
	}
	equal(t, "codes of the contract", sorted(inContract), sorted(inDomain))
	equal(t, "codes of the client", sorted(problemCodes(t, "../client/client.gen.go")), sorted(inDomain))
	equal(t, "codes of the guide about errors", sorted(guideCodes(t)),
		sorted(inDomain))
	equal(t, "codes of the server", sorted(problemCodes(t, "server.gen.go")), sorted(inDomain))
}

// guideCodes returns the codes that the guide about errors explains.
func guideCodes(t *testing.T) (codes []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/guides/errors.md")
	need(t, err)
	for _, found := range regexp.MustCompile(
		`(?m)^## (\w+)\n\n\*\*([0-9]{3}) ([^*]+)\.\*\* .+\n\n\*\*What to do:\*\* .+\n`).FindAllStringSubmatch(string(text),
		-1) {
		codes = append(codes, found[1])
		for _, e := range card.PublicErrors() {
			if e.Code == found[1] {
				equal(t, "title of "+e.Code, found[3], e.Title)
			}
		}
	}
	return codes
}

// A problem's type is the URL of its documentation, which does not depend on
// the request.
func TestProblem_Type_IsDocumentationURL(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{publicURL: "https://cards.example"})
	for _, host := range []string{"cards.example", "evil.example"} {
		p := d.send(t, http.MethodGet, "/api/cards", "", "", "X-Forwarded-Host", host, "X-Forwarded-Proto",
			"http").refused(t, http.StatusUnauthorized, "unauthorized")
		equal(t, "type", p.Type, "https://cards.example/docs/errors#unauthorized")
	}
	p := deploy(t, setup{}).send(t, http.MethodGet, "/api/cards", "", "").refused(t, http.StatusUnauthorized,
		"unauthorized")
	equal(t, "type of a service that does not know its address", p.Type,
		"https://github.com/cardmint/cardmint/blob/main/docs/guides/errors.md#unauthorized")
}

// problemCodes reads the constants of type ProblemCode out of a source file.
func problemCodes(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	need(t, err)
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "ProblemCode" {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			need(t, err)
			codes = append(codes, code)
		}
		return true
	})
	return codes
}

func TestProblem_NumbersOfTheService_AreNotRedacted(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	pay := paymentsOf(d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")))
	const form = "must be a decimal number such as 0.983456789012, with at most 6 digits before the point and 12 after it"
	for range 4 {
		d.send(t, http.MethodPost, pay, token, `{"amount":"999999"}`).want(t, http.StatusOK)
	}
	for _, x := range []struct{ body, detail string }{
		{`{"amount":"0,5"}`, form},
		{`{"amount":"4111111111111111"}`, form},
		{`{"amount":"999999"}`, "must be at most 611690.018427387903: more coins than there are can't come to one address"},
	} {
		p := d.send(t, http.MethodPost, pay, token, x.body).invalid(t, "/amount")
		equal(t, x.body, p.Errors[0].Detail, x.detail)
	}
}

// Any part of a request that a problem quotes may be a card number.
func TestProblem_NumbersOfTheRequest_AreRedacted(t *testing.T) {
	t.Parallel()
	poster := webhook.NewHTTPPoster(outbound.Guard{})
	t.Cleanup(poster.Close)
	d := deploy(t, setup{poster: poster})
	token := d.token(t)
	const number = "4111 1111-11111111"
	for name, x := range map[string]struct {
		method, path, body string
		want               string // of the problem
	}{
		"query": {http.MethodGet, "/api/cards?" + url.QueryEscape(number) + "=1", "", `"pointer":"query/[number]"`},
		"field": {http.MethodPost, "/api/cards", orderWith(`"` + number + `":1`), `"pointer":"/[number]"`},
		"key of metadata": {http.MethodPost, "/api/cards", orderWith(`"metadata":{"` + number + `":1}`),
			`"pointer":"/metadata/[number]"`},
		"long key": {http.MethodPost, "/api/cards",
			orderWith(`"metadata":{"` + number + strings.Repeat("k", 40) + `":""}`), `"pointer":"/metadata/[number]kkk`},
		"repeated key": {http.MethodPost, "/api/cards", `{"` + number + `":1,"` + number + `":1}`,
			`The key \"[number]\" appears more than once.`},
		"currency": {http.MethodPost, "/api/cards", `{"usd_amount":50,"currency":"` + number + `"}`,
			`"pointer":"/currency"`},
		"amount": {http.MethodPost, "/api/cards", `{"usd_amount":"` + number + `","currency":"monero"}`,
			`"pointer":"/usd_amount"`},
		"refund address": {http.MethodPost, "/api/cards", orderWith(`"refund_address":"4111111111111111"`),
			`"pointer":"/refund_address"`},
		"URL": {http.MethodPost, "/api/webhooks", `{"url":"https://4111111111111111/"}`, `"pointer":"/url"`},
		"type of events": {http.MethodPost, "/api/webhooks", `{"url":"https://shop.example/","types":["` + number + `"]}`,
			`"pointer":"/types/0"`},
	} {
		a := d.send(t, x.method, x.path, token, x.body)
		if a.status < 400 || !strings.Contains(a.body, x.want) {
			t.Errorf("%s: status %d, want a problem with %s: %s", name, a.status, x.want, a.body)
		}
		if strings.Contains(a.body, "1111") || strings.Contains(d.log.String(), "1111-1111") {
			t.Errorf("%s: the number is not redacted: %s", name, a.body)
		}
	}
}
