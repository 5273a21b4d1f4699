package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
)

// validate refuses what the contract does not allow, and names everything that is wrong at once.
func (s *spec) validate(a *api, problems problemWriter) gin.HandlerFunc {
	return func(c *gin.Context) {
		route := s.routes[c.Request.Method+" "+c.FullPath()]
		body, err := readBody(c.Request, route.Operation.RequestBody)
		if err != nil {
			problems.write(c, err)
			return
		}
		wrong := wrongParameters(c, route)
		if body != nil {
			wrong = append(wrong, wrongBody(body.value, route.Operation.RequestBody.Value)...)
			if object, ok := body.value.(map[string]any); ok {
				wrong = merge(wrong, a.check(c, route.Operation.OperationID, object))
			}
			c.Request.Body = body
		}
		if len(wrong) > 0 {
			problems.write(c, card.ErrInvalidRequest.WithFields(wrong...))
		}
	}
}

// parsedBody is a body that was read. The generated code binds the value that was validated, not a second reading of the text.
type parsedBody struct{ value any }

// Read fails. The generated code comes here with a value that does not bind, and would take an end for a request without a body.
func (*parsedBody) Read([]byte) (int, error) { return 0, errors.New("the body does not bind") }

// Close does nothing.
func (*parsedBody) Close() error { return nil }

// ValidatedValue implements what the generated code looks for.
func (b *parsedBody) ValidatedValue() any { return b.value }

// readBody reads the body of an operation that has one, and checks that it is one JSON text and nothing else. It is nil if there is none.
func readBody(r *http.Request, declared *openapi3.RequestBodyRef) (*parsedBody, error) {
	if declared == nil {
		return nil, nil
	}
	if r.ContentLength == 0 && !declared.Value.Required {
		return nil, nil
	}
	// Bodies are JSON, says the source document: a client need not repeat it.
	media, params, err := mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), "application/json"))
	charset := params["charset"]
	if err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") || r.Header.Get("Content-Encoding") != "" {
		return nil, card.ErrUnsupportedMedia
	}
	text, err := io.ReadAll(r.Body)
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, card.ErrBodyTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, card.ErrRequestTimeout
	case err != nil:
		return nil, card.ErrMalformedJSON.Saying("The body broke off.")
	}
	if len(text) == 0 && !declared.Value.Required { // sent in chunks, of which there were none
		return nil, nil
	}
	value, fault := strictJSON(text)
	if fault != "" {
		return nil, card.ErrMalformedJSON.Saying(fault)
	}
	return &parsedBody{value}, nil
}

// check has the domain read a body, once: it returns what only the domain finds wrong, so that a client learns of everything at once, and
// leaves what it read to the handler. The body's fields may be of any type.
func (a *api) check(c *gin.Context, operation string, body map[string]any) []card.FieldError {
	switch operation {
	case "createCard":
		usd, _ := body["usd_amount"].(string)
		if number, ok := body["usd_amount"].(json.Number); ok {
			usd = number.String()
		}
		currency, _ := body["currency"].(string)
		o, wrong := a.orders.Check(usd, currency)
		c.Set(checkedKey, o)
		return wrong
	case "createWebhook", "updateWebhook":
		if url, ok := body["url"].(string); ok {
			return a.webhooks.CheckWebhook(url)
		}
	}
	return nil
}

// merge adds what the domain finds wrong to what the schema finds. About one place the domain says it better, unless the value is
// not there at all.
func merge(schema, domain []card.FieldError) []card.FieldError {
	for _, d := range domain {
		i := slices.IndexFunc(schema, func(f card.FieldError) bool { return f.Pointer == d.Pointer })
		switch {
		case i < 0:
			schema = append(schema, d)
		case schema[i].Detail != isMissing:
			schema[i] = d
		}
	}
	return schema
}
