package server

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/cardmint/cardmint/internal/card"
)

// unknownParameters returns an error for each name in a query that an operation
// does not have. To leave out a filter that is misspelled would answer another
// question than the one that was asked.
func unknownParameters(query string, declared openapi3.Parameters) (wrong []card.FieldError) {
	if query == "" {
		return nil
	}
	sent, err := url.ParseQuery(query)
	if err != nil {
		wrong = append(wrong,
			card.FieldError{Pointer: "query",
				Detail: `is not well-formed: percent-encode "%", "&", "+" and ";" in names and values`})
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if declared.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			wrong = append(wrong,
				card.FieldError{Pointer: "query/" + name,
					Detail: "is not a query parameter of this operation" + suggestion(name, declared)})
		}
	}
	return wrong
}

// suggestion returns the end of a sentence that says which query parameter may
// have been meant, or which there are.
func suggestion(name string, declared openapi3.Parameters) string {
	const longest = 64 // of a name that is compared
	var known []string
	nearest, least := "", len(name)/3+1
	for _, p := range declared {
		if p.Value.In != openapi3.ParameterInQuery {
			continue
		}
		known = append(known, p.Value.Name)
		if len(name) > longest {
			continue
		}
		if n := card.Distance(strings.ToLower(name), p.Value.Name); n < least {
			nearest, least = p.Value.Name, n
		}
	}
	switch {
	case nearest != "":
		return `: did you mean "` + nearest + `"?`
	case known == nil:
		return ", which has none"
	}
	return ", which has: " + strings.Join(known, ", ")
}
