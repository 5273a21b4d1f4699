package reference_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// contract is the published document without additional properties, so that
// undocumented fields are errors.
var contract = sync.OnceValue(func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromFile("../../../openapi/supplier.yaml")
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

// checked validates every request and answer against the contract.
func checked(t *testing.T, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		route, params := findRoute(t, r)
		sentIn := &openapi3filter.RequestValidationInput{Request: r.Clone(r.Context()), PathParams: params, Route: route,
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
		sentIn.Request.Body = io.NopCloser(bytes.NewReader(body))
		if err := openapi3filter.ValidateRequest(context.Background(), sentIn); err != nil {
			t.Errorf("%s %s violates the contract: %v", r.Method, r.URL, err)
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		answer := recorder.Body.Bytes()
		if !strings.Contains(string(answer), `"EUR"`) { // a violation that the test requested
			err := openapi3filter.ValidateResponse(context.Background(),
				&openapi3filter.ResponseValidationInput{RequestValidationInput: sentIn,
					Status: recorder.Code, Header: recorder.Header(), Body: io.NopCloser(bytes.NewReader(answer)),
					Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true}})
			if err != nil {
				t.Errorf("%s %s: answer %d violates the contract: %v\n%s", r.Method, r.URL, recorder.Code, err, answer)
			}
		}
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(answer)
	})
}

func findRoute(t *testing.T, r *http.Request) (*routers.Route, map[string]string) {
	path, params := r.URL.Path, map[string]string{}
	if key, is := strings.CutPrefix(path, "/cards/"); is {
		key, cancel := strings.CutSuffix(key, "/cancel")
		if path, params["key"] = "/cards/{key}", key; cancel {
			path += "/cancel"
		}
	}
	item := contract().Paths.Value(path)
	if item == nil || item.GetOperation(r.Method) == nil {
		t.Fatalf("%s %s is not in the contract", r.Method, r.URL)
	}
	return &routers.Route{Spec: contract(), Path: path, PathItem: item, Method: r.Method,
		Operation: item.GetOperation(r.Method)}, params
}
