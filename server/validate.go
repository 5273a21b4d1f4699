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

// validate rejects requests that violate the contract. The response lists all
// their errors.
func (s *spec) validate(a *api, problems problemWriter) gin.HandlerFunc {
	return func(c *gin.Context) {
		route := s.route(c)
		body, err := readBody(c.Request, route.Operation.RequestBody)
		if err != nil {
			problems.write(c, err)
			return
		}
		joinHeader(c.Request.Header, ifNoneMatch) // the contract's only list header
		errs := s.validation.parameterErrors(c, route)
		if body != nil {
			errs = append(errs, s.validation.bodyErrors(body.value, route.Operation.RequestBody.Value)...)
			c.Request.Body = body
		}
		if len(errs) > 0 {
			errs = merge(errs, a.domainErrors(c, route.Operation.OperationID, body))
			problems.write(c, card.ErrInvalidRequest.WithFields(errs...))
		}
	}
}

// parsedBody is a parsed request body. The generated code binds its validated
// value instead of parsing the text again.
type parsedBody struct{ value any }

// Read returns an error. The generated code calls it only if the value does not
// bind; it would interpret io.EOF as a missing body.
func (*parsedBody) Read([]byte) (int, error) { return 0, errors.New("the body does not bind") }

// Close does nothing.
func (*parsedBody) Close() error { return nil }

// ValidatedValue returns the parsed body to the generated code.
func (b *parsedBody) ValidatedValue() any { return b.value }

// readBody reads the body of a request, which must be a single JSON text. It
// returns nil if the operation or the request has no body.
func readBody(r *http.Request, declared *openapi3.RequestBodyRef) (*parsedBody, error) {
	if declared == nil {
		return nil, nil
	}
	if r.ContentLength == 0 && !declared.Value.Required {
		return nil, nil
	}
	// Content-Type is optional, because all bodies are JSON.
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
		return nil, card.ErrMalformedJSON.WithMessage("The body is incomplete.")
	}
	if len(text) == 0 && !declared.Value.Required { // chunked, without a chunk
		return nil, nil
	}
	value, fault := strictJSON(text)
	if fault != "" {
		return nil, card.ErrMalformedJSON.WithMessage(fault)
	}
	return &parsedBody{value}, nil
}

// domainErrors returns the errors that the actors find in a request that
// violates the contract, so that one response lists all of them. The actors
// check a valid request when its handler calls them. body is nil if there is
// none.
func (a *api) domainErrors(c *gin.Context, operation string, body *parsedBody) []card.FieldError {
	switch operation {
	case "listCards":
		return a.orders.CheckFilter(order.Filter{Currency: c.Query("currency"), Reference: card.Secret(c.Query("reference"))})
	case "createCard":
		if request, ok := bindValid[CreateCardRequest](body); ok {
			_, errs := a.orders.Check(orderRequest(request))
			return errs
		}
	case "createWebhook", "updateWebhook":
		if request, ok := bindValid[UpdateWebhookRequest](body); ok && request.URL != nil {
			return a.webhooks.CheckWebhook(*request.URL)
		}
	}
	return nil
}

// bindValid binds the fields of an object that have the type that the contract
// requires. It returns false if the body is not an object.
func bindValid[T any](body *parsedBody) (request T, ok bool) {
	if body == nil {
		return request, false
	}
	if _, ok = body.value.(map[string]any); !ok {
		return request, false
	}
	text, err := json.Marshal(body.value)
	if err != nil {
		return request, false
	}
	_ = json.Unmarshal(text, &request) // a *json.UnmarshalTypeError skips only its field
	return request, true
}

// merge adds the domain's errors to the schema's errors. If both concern the
// same field, the domain's text is more helpful, unless the field is missing.
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
