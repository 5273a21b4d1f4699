package server

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/cardmint/cardmint/internal/card"
)

// unknownParameters returns an error for each name in a query that is not a
// parameter of the operation. Without a misspelled filter, the response would
// answer a different question.
func unknownParameters(query string, declared openapi3.Parameters) (errs []card.FieldError) {
	if query == "" {
		return nil
	}
	sent, err := url.ParseQuery(query)
	if err != nil {
		errs = append(errs, card.FieldError{
			Pointer: "query",
			Detail:  `is not well-formed: percent-encode "%", "&", "+" and ";" in names and values`,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if declared.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			detail := "is not a query parameter of this operation" + suggestion(name, declared)
			errs = append(errs, card.FieldError{Pointer: "query/" + name, Detail: detail})
		}
	}
	return errs
}

// suggestion returns the end of a sentence: the query parameter that may be
// meant, or all of them.
func suggestion(name string, declared openapi3.Parameters) string {
	var known []string
	for _, p := range declared {
		if p.Value.In == openapi3.ParameterInQuery {
			known = append(known, p.Value.Name)
		}
	}
	if len(known) == 0 {
		return ", which has none"
	}
	if nearest := card.Nearest(name, known); nearest != "" {
		return `: did you mean "` + nearest + `"?`
	}
	return ", which has: " + strings.Join(known, ", ")
}
