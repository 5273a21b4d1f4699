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
	"github.com/cardmint/cardmint/internal/order"
)

// validate refuses requests that violate the contract. The response lists
// everything that is wrong.
func (s *spec) validate(a *api, problems problemWriter) gin.HandlerFunc {
	return func(c *gin.Context) {
		route := s.route(c)
		body, err := readBody(c.Request, route.Operation.RequestBody)
		if err != nil {
			problems.write(c, err)
			return
		}
		joinHeader(c.Request.Header, ifNoneMatch) // the one list among the headers of the contract
		wrong := merge(s.validation.parameterErrors(c, route), a.checkQuery(c, route.Operation.OperationID))
		if body != nil {
			wrong = append(wrong, s.validation.bodyErrors(body.value, route.Operation.RequestBody.Value)...)
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

// parsedBody is a request body that was parsed. The generated code binds its
// value, which was validated, instead of parsing the text again.
type parsedBody struct{ value any }

// Read returns an error. The generated code calls it only if the value does not
// bind, and would take io.EOF for a missing body.
func (*parsedBody) Read([]byte) (int, error) { return 0, errors.New("the body does not bind") }

// Close does nothing.
func (*parsedBody) Close() error { return nil }

// ValidatedValue returns the parsed body to the generated code.
func (b *parsedBody) ValidatedValue() any { return b.value }

// readBody reads the body of a request, which must be exactly one JSON text. It
// returns nil if the operation, or the request, has none.
func readBody(r *http.Request, declared *openapi3.RequestBodyRef) (*parsedBody, error) {
	if declared == nil {
		return nil, nil
	}
	if r.ContentLength == 0 && !declared.Value.Required {
		return nil, nil
	}
	// The contract says that bodies are JSON, so a client need not send
	// Content-Type.
	media, params, err := mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), "application/json"))
	charset := params["charset"]
	if err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") ||
		r.Header.Get("Content-Encoding") != "" {
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
	if len(text) == 0 && !declared.Value.Required { // chunked, but without a chunk
		return nil, nil
	}
	value, fault := strictJSON(text)
	if fault != "" {
		return nil, card.ErrMalformedJSON.Saying(fault)
	}
	return &parsedBody{value}, nil
}

// check has the domain check a body, so that a client learns at once of
// everything that is wrong. It leaves the order that the domain read in c, for
// the handler. The body's fields may have any type.
func (a *api) check(c *gin.Context, operation string, body map[string]any) []card.FieldError {
	switch operation {
	case "createCard":
		usd, _ := body["usd_amount"].(string)
		if number, ok := body["usd_amount"].(json.Number); ok {
			usd = number.String()
		}
		currency, _ := body["currency"].(string)
		refundTo, _ := body["refund_address"].(string)
		o, wrong := a.orders.Check(
			order.Request{USDAmount: usd, Currency: currency, RefundAddress: refundTo, Reference: reference(body),
				Metadata: metadata(body)})
		c.Set(checkedKey, o)
		return wrong
	case "createWebhook", "updateWebhook":
		if url, ok := body["url"].(string); ok {
			return a.webhooks.CheckWebhook(url)
		}
	}
	return nil
}

// reference returns the reference in a body, or nil.
func reference(body map[string]any) *string {
	if text, ok := body["reference"].(string); ok {
		return &text
	}
	return nil
}

// metadata returns the metadata in a body, or nil. The schema refuses values
// that are no strings; here they are empty.
func metadata(body map[string]any) map[string]string {
	object, ok := body["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	pairs := make(map[string]string, len(object))
	for key, value := range object {
		pairs[key], _ = value.(string)
	}
	return pairs
}

// checkQuery has the domain check a query.
func (a *api) checkQuery(c *gin.Context, operation string) []card.FieldError {
	if operation != "listCards" || c.Request.URL.RawQuery == "" {
		return nil
	}
	return a.orders.CheckFilter(order.Filter{Currency: c.Query("currency"), Reference: card.Secret(c.Query("reference"))})
}

// merge adds what the domain finds wrong to what the schema finds. If both name
// the same place, the domain's text is the better one, unless the value is
// missing.
func merge(schema, domain []card.FieldError) []card.FieldError {
	for _, d := range domain {
		i := slices.IndexFunc(schema, func(f card.FieldError) bool { return f.Pointer == d.Pointer })
		switch {
		case i < 0:
			schema = append(schema, d)
		case schema[i].Detail != detailMissing:
			schema[i] = d
		}
	}
	return schema
}
