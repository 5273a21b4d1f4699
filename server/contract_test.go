package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/openapi"
)

// contract is the published document. Unknown fields fail validation, so that
// responses contain nothing else.
var contract = sync.OnceValue(func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(openapi.YAML)
	if err == nil {
		err = doc.Validate(context.Background())
	}
	if err != nil {
		panic(err)
	}
	for _, schema := range doc.Components.Schemas {
		if schema.Value.Type.Is("object") {
			schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
		}
	}
	return doc
})

// strict are exact validators of the contract's formats.
var strict = sync.OnceValue(func() []openapi3.SchemaValidationOption {
	text := func(name, pattern string) openapi3.SchemaValidationOption {
		return openapi3.WithStringFormatValidator(name, openapi3.NewRegexpFormatValidator(pattern))
	}
	return []openapi3.SchemaValidationOption{
		text("uuid", `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
		text("date-time", `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`),
		text("decimal", `^(0|[1-9]\d*)(\.\d*[1-9])?$`),
		text("usd", `^[1-9]\d*(\.\d[1-9]|\.[1-9]\d)?$`),
		text("uri", `^https://[^ ]+$`),
		openapi3.MultiErrors(),
	}
})

// checked is a transport that validates each response against the contract.
type checked struct {
	t    testing.TB
	next http.RoundTripper
}

func (c checked) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	checkResponse(c.t, r.Method, r.URL, res, body, err != nil)
	res.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		res.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
	}
	return res, nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// checkResponse fails the test unless the contract has this response. It checks
// only the header of an aborted response.
func checkResponse(t testing.TB, method string, u *url.URL, res *http.Response, body []byte, cut bool) {
	t.Helper()
	if err := responseFault(method, u, res, body, cut); err != nil {
		t.Errorf("%s %s: %d violates the contract: %v\n%v\n%.2000s", method, u, res.StatusCode, err, res.Header, body)
	}
}

var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func responseFault(method string, u *url.URL, res *http.Response, body []byte, cut bool) error {
	id := res.Header.Get("X-Request-Id")
	switch {
	case !requestID.MatchString(id):
		return fmt.Errorf("X-Request-Id is %q", id)
	case res.Header.Get("X-Content-Type-Options") != "nosniff":
		return errors.New("no X-Content-Type-Options")
	case slices.Contains(outsideContract, u.Path) && (method == http.MethodGet || method == http.MethodHead),
		method == http.MethodOptions && res.StatusCode == http.StatusNoContent:
		return nil
	case strings.HasPrefix(u.Path, "/api") && res.Header.Get("Cache-Control") != "no-store":
		return fmt.Errorf("Cache-Control is %q", res.Header.Get("Cache-Control"))
	}
	if res.StatusCode >= 400 {
		if err := problemFault(method, res, body); err != nil {
			return err
		}
	}
	if method == http.MethodHead {
		method, cut = http.MethodGet, true
	}
	path, item, params := findPath(u.Path)
	operation := (*openapi3.Operation)(nil)
	if item != nil {
		operation = item.Operations()[method]
	}
	switch {
	case operation == nil && (item != nil || slices.Contains(outsideContract, u.Path)):
		if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") == "" {
			return errors.New("want 405 with Allow")
		}
		return nil
	case operation == nil:
		if res.StatusCode != http.StatusNotFound {
			return errors.New("want 404")
		}
		return nil
	}
	for name := range operation.Responses.Status(res.StatusCode).Value.Headers {
		optional := name == "Link" || name == "ETag" || name == "Idempotency-Replayed" ||
			name == "WWW-Authenticate" && res.StatusCode == http.StatusForbidden || // see problemFault
			strings.HasPrefix(name, "RateLimit") && res.StatusCode >= 500 // not authenticated
		if !optional && res.Header.Get(name) == "" {
			return fmt.Errorf("the header %s is missing", name)
		}
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: &http.Request{Method: method, URL: u}, PathParams: params,
			Route: &routers.Route{Spec: contract(), Path: path, PathItem: item, Method: method, Operation: operation},
		},
		Status: res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true, ExcludeResponseBody: cut,
			SchemaValidationOptions: strict()},
	})
}

// outsideContract are the routes outside of the contract.
var outsideContract = []string{"/livez", "/readyz", "/openapi.yaml", "/openapi.json", "/openapi-3.1.yaml"}

// problemFault returns how a problem violates RFC 9457, or the contract's rules
// for all problems.
func problemFault(method string, res *http.Response, body []byte) error {
	if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
		return fmt.Errorf("Content-Type is %q", got)
	}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		if res.Header.Get("WWW-Authenticate") != "Bearer" {
			return errors.New("want WWW-Authenticate: Bearer")
		}
	case http.StatusServiceUnavailable:
		if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || n < 1 {
			return errors.New("want Retry-After in seconds")
		}
	}
	if method == http.MethodHead {
		return nil
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	if err := contract().Components.Schemas["Problem"].Value.VisitJSON(value,
		append(strict(), openapi3.VisitAsResponse())...); err != nil {
		return err
	}
	var p problem
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	challenge := regexp.MustCompile(`^Bearer error="insufficient_scope", scope="[a-z]+:[a-z]+"$`).MatchString(
		res.Header.Get("WWW-Authenticate"))
	switch {
	case (p.Code == "insufficient_scope") != challenge:
		return errors.New("WWW-Authenticate must name a scope if and only if the code is insufficient_scope")
	case p.Status != res.StatusCode:
		return fmt.Errorf("its status is %d", p.Status)
	case !strings.HasSuffix(p.Type, "/docs/errors#"+p.Code) &&
		p.Type != "https://github.com/cardmint/cardmint/blob/main/docs/guides/errors.md#"+p.Code:
		return errors.New("its type does not name its code")
	case p.RequestID != res.Header.Get("X-Request-Id"):
		return errors.New("its request_id is not X-Request-Id")
	case p.Title == "" || p.Detail == "":
		return errors.New("it has no title or detail")
	case (p.Code == "invalid_request") != (len(p.Errors) > 0):
		return errors.New("only invalid_request has errors")
	}
	for _, e := range p.Errors {
		if e.Detail == "" {
			return errors.New("an error without a detail")
		}
	}
	return nil
}

// findPath returns the path template that matches a request's path.
func findPath(path string) (string, *openapi3.PathItem, map[string]string) {
	steps := strings.Split(path, "/")
next:
	for template, item := range contract().Paths.Map() {
		wanted := strings.Split(template, "/")
		if len(wanted) != len(steps) {
			continue
		}
		params := map[string]string{}
		for i, w := range wanted {
			switch {
			case strings.HasPrefix(w, "{") && (steps[i] != "" || i < len(steps)-1):
				params[strings.Trim(w, "{}")] = steps[i]
			case w != steps[i]:
				continue next
			}
		}
		return template, item, params
	}
	return "", nil, nil
}

// Cards in a state that the code does not know would be reported as corrupt.
func TestContract_ListsPaymentStates(t *testing.T) {
	t.Parallel()
	var want []string
	for _, s := range contract().Components.Schemas["PaymentState"].Value.Enum {
		want = append(want, fmt.Sprint(s))
	}
	var got []string
	for _, s := range card.PaymentStates() {
		got = append(got, string(s))
	}
	equal(t, "states", got, want)
}
