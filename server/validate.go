package server

import (
	"bytes"
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

// semantic finds what the schema of an operation can't express.
var semantic = map[string]func(*card.Service, []byte) []card.FieldError{
	"createCard": func(s *card.Service, body []byte) []card.FieldError { return s.CheckCreate(createRequest(body)) },
}

// validate refuses what the contract does not allow, and names everything that is wrong at once.
func (s *spec) validate(service *card.Service, problems problemWriter) gin.HandlerFunc {
	return func(c *gin.Context) {
		route := s.routes[c.Request.Method+" "+c.FullPath()]
		body, err := s.body(c.Request, route.Operation)
		if err != nil {
			problems.write(c, err)
			return
		}
		wrong := violations(c, route)
		if check, ok := semantic[route.Operation.OperationID]; ok && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
			wrong = merge(wrong, check(service, body))
		}
		if len(wrong) > 0 {
			problems.write(c, card.ErrInvalidRequest.WithFields(wrong...))
			return
		}
		c.Request.Body = io.NopCloser(bytes.NewReader(body))
	}
}

// body reads the body of an operation that has one, checks that it is one JSON text and nothing else, and puts it back.
func (s *spec) body(r *http.Request, operation *openapi3.Operation) ([]byte, error) {
	if operation.RequestBody == nil {
		return nil, nil
	}
	if r.ContentLength == 0 && !operation.RequestBody.Value.Required {
		r.Body = http.NoBody
		return nil, nil
	}
	if r.Header.Get("Content-Type") == "" { // bodies are JSON, says the source document; a client need not repeat it
		r.Header.Set("Content-Type", "application/json")
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") || r.Header.Get("Content-Encoding") != "" {
		return nil, card.ErrUnsupportedMedia
	}
	body, err := io.ReadAll(r.Body)
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, card.ErrBodyTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, card.ErrRequestTimeout
	case err != nil:
		return nil, card.ErrMalformedJSON.Saying("The body broke off.")
	}
	if fault := strictJSON(body); fault != "" {
		return nil, card.ErrMalformedJSON.Saying(fault)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// createRequest reads a body of createCard exactly, whatever form usd_amount has.
func createRequest(body []byte) card.CreateRequest {
	var fields map[string]json.RawMessage // not a struct, whose names are matched without regard to case
	_ = json.Unmarshal(body, &fields)     // what is missing or of another type is found wrong by the schema
	return card.CreateRequest{USDAmount: jsonText(fields["usd_amount"]), Currency: jsonText(fields["currency"])}
}

// jsonText returns the text of a JSON string, or any other JSON value as it is written.
func jsonText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// merge adds what the domain finds wrong to what the schema finds, so that a client learns of everything at once. About one
// place the domain says it better, unless the value is not there at all.
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
