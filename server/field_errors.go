package server

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Details of missing and of unknown fields.
const (
	detailMissing = "is missing"
	detailUnknown = "is not a field of this request"
)

// patternDetails has the details of text that does not match a pattern of the
// contract. A test checks that it has every pattern.
var patternDetails = map[string]string{
	`^[!-~]+$`:                       "must have only visible ASCII characters, and no spaces",
	`^[^\x00]*$`:                     "must not have the character NUL",
	`^[0-9]{1,9}(\.[0-9]{1,2}0*)?$`:  "must be an amount of US dollars such as 150 or 99.99",
	`^[0-9]{1,6}(\.[0-9]{1,12}0*)?$`: "must be a decimal number such as 0.983456789012, with at most 6 digits before the point and 12 after it",
}

// validation validates requests against the contract.
type validation struct {
	body       []openapi3.SchemaValidationOption
	parameters *openapi3filter.Options
}

// newValidation returns a validation. It enforces the formats uuid and
// date-time; the other formats in the contract only document.
func newValidation() validation {
	formats := openapi3.WithStringFormatValidators(
		map[string]openapi3.StringFormatValidator{"uuid": uuidFormat{}, "date-time": dateTimeFormat{}})
	return validation{
		body: []openapi3.SchemaValidationOption{openapi3.VisitAsRequest(), openapi3.MultiErrors(), formats},
		parameters: &openapi3filter.Options{
			MultiError: true, SkipSettingDefaults: true, ExcludeRequestBody: true,
			AuthenticationFunc:      openapi3filter.NoopAuthenticationFunc,
			SchemaValidationOptions: []openapi3.SchemaValidationOption{formats},
		},
	}
}

// bodyErrors returns all violations of the schema in a body.
func (v validation) bodyErrors(value any, declared *openapi3.RequestBody) []card.FieldError {
	schema := declared.Content.Get("application/json").Schema.Value
	return fieldErrors("", schema.VisitJSON(value, v.body...))
}

// parameterErrors returns all violations of the contract in path, query and
// headers.
func (v validation) parameterErrors(c *gin.Context, route *routers.Route) []card.FieldError {
	unknown := unknownParameters(c.Request.URL.RawQuery, route.Operation.Parameters)
	sent, repeated := sentParameters(c, route.Operation.Parameters)
	if !sent {
		return unknown
	}
	params := make(map[string]string, len(c.Params))
	for _, p := range c.Params {
		params[p.Key] = p.Value
	}
	errs := fieldErrors("", openapi3filter.ValidateRequest(c, &openapi3filter.RequestValidationInput{
		Request: c.Request, PathParams: params, Route: route, Options: v.parameters,
	}))
	return slices.Concat(errs, repeated, unknown)
}

// sentParameters reports whether there is a parameter to validate: a required
// one, or any that was sent. It returns errors for parameters that were sent
// more than once.
func sentParameters(c *gin.Context, declared openapi3.Parameters) (sent bool, repeated []card.FieldError) {
	for _, p := range declared {
		in, name, n := p.Value.In, p.Value.Name, 1
		switch in {
		case "header":
			n = len(c.Request.Header.Values(name))
		case "query":
			n = len(c.QueryArray(name))
		}
		if n > 1 {
			repeated = append(repeated, card.FieldError{Pointer: in + "/" + name, Detail: "must be sent once"})
		}
		sent = sent || n > 0 || p.Value.Required
	}
	return sent, repeated
}

// fieldErrors flattens the validator's error. It uses only the reasons, because
// the full texts quote values.
func fieldErrors(place string, err error) []card.FieldError {
	switch e := err.(type) { //nolint:errorlint // fieldErrors walks the tree itself, level by level
	case nil:
		return nil
	case openapi3.MultiError:
		var all []card.FieldError
		for _, inner := range e {
			all = append(all, fieldErrors(place, inner)...)
		}
		return all
	case *openapi3filter.RequestError:
		if e.Parameter != nil {
			place = e.Parameter.In + "/" + e.Parameter.Name
		}
		if errors.Is(e.Err, openapi3filter.ErrInvalidRequired) {
			return []card.FieldError{{Pointer: place, Detail: detailMissing}}
		}
		if e.Err != nil {
			return fieldErrors(place, e.Err)
		}
	case *openapi3.SchemaError:
		return []card.FieldError{schemaError(place, e)}
	case *openapi3filter.ParseError:
		return []card.FieldError{{Pointer: place, Detail: "does not have the right type"}}
	}
	return []card.FieldError{{Pointer: place, Detail: "is not valid"}}
}

func schemaError(place string, e *openapi3.SchemaError) card.FieldError {
	path := e.JSONPointer()
	detail := card.Redact(e.Reason) // text of the validator
	switch e.SchemaField {
	case "required":
		detail = detailMissing
	case "properties", "additionalProperties":
		quoted := strings.TrimSuffix(strings.TrimPrefix(e.Reason, "property "), " is unsupported")
		if name, err := strconv.Unquote(quoted); err == nil {
			path = append(path, name)
		}
		detail = detailUnknown
	case "nullable":
		detail = "must not be null: send a value, or leave it out"
	case "type":
		detail = "must be " +
			map[string]string{"string": "a string", "integer": "a whole number", "number": "a number",
				"boolean": "true or false",
				"object":  "an object", "array": "an array"}[e.Schema.Type.Slice()[0]]
	case "minLength", "maxLength":
		detail = "must have " + between(float64(e.Schema.MinLength), floatBound(e.Schema.MaxLength)) + " characters"
	case "minimum", "maximum":
		detail = "must be " + between(deref(e.Schema.Min, math.Inf(-1)), deref(e.Schema.Max, math.Inf(1)))
	case "pattern":
		detail = patternDetails[e.Schema.Pattern]
	case "format":
		if e.Schema.Format == "uuid" {
			detail = "must be a UUID"
		}
		if e.Schema.Format == "date-time" {
			detail = "must be a time such as 2026-11-20T14:46:00.120Z"
		}
	case "enum":
		detail = "must be one of: " + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(e.Schema.Enum), "[]")), ", ")
	}
	return card.FieldError{Pointer: place + pointer(path), Detail: detail}
}

// between describes a range, both bounds inclusive. An infinite bound is none.
func between(least, most float64) string {
	switch {
	case math.IsInf(most, 1):
		return fmt.Sprintf("at least %.0f", least)
	case math.IsInf(least, -1):
		return fmt.Sprintf("at most %.0f", most)
	}
	return fmt.Sprintf("%.0f to %.0f", least, most)
}

// floatBound returns an optional upper bound.
func floatBound(most *uint64) float64 {
	if most == nil {
		return math.Inf(1)
	}
	return float64(*most)
}

// pointer returns path as a JSON pointer (RFC 6901).
func pointer(path []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, step := range path {
		b.WriteString("/" + escape.Replace(step))
	}
	return b.String()
}

var errNotUUID = errors.New("must be a UUID")

type uuidFormat struct{}

// Validate accepts only the 36 character form of RFC 9562. Some libraries
// accept more forms.
func (uuidFormat) Validate(s string) error {
	if len(s) != 36 {
		return errNotUUID
	}
	return uuid.Validate(s)
}

type dateTimeFormat struct{}

// Validate accepts times in the form of RFC 3339.
func (dateTimeFormat) Validate(s string) error {
	_, err := time.Parse(time.RFC3339, s)
	return err
}
