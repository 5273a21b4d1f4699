package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Examples equal real responses: they have the same fields, nulls and states.
func TestExamples_EqualResponses(t *testing.T) {
	t.Parallel()
	real := reality{}
	d := deploy(t, setup{})
	real.cards(t, d)
	real.webhooks(t)
	real.events(t, d)
	real.market(t, d)
	examples := contract().Components.Examples
	equal(t, "names", slices.Sorted(maps.Keys(examples)), slices.Sorted(maps.Keys(real)))
	for name, example := range examples {
		if responded, ok := real[name]; ok {
			equal(t, name, shape("", plain(t, example.Value.Value)), shape("", responded))
			equal(t, name+": what can't be", impossible("", responded), nil)
		}
	}
}

// Every JSON response and callback has examples. Each fits its schema and is
// consistent.
func TestExamples_ExistAndAreConsistent(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	check := func(where string, content openapi3.Content) {
		for kind, media := range content {
			if kind != "application/json" {
				continue
			}
			if len(media.Examples) == 0 {
				t.Errorf("%s has no examples", where)
			}
			for key, example := range media.Examples {
				used[strings.TrimPrefix(example.Ref, "#/components/examples/")] = true
				value := plain(t, example.Value.Value)
				if err := media.Schema.Value.VisitJSON(value, append(strict(), openapi3.VisitAsResponse())...); err != nil {
					t.Errorf("%s, %s: %v", where, key, err)
				}
				equal(t, where+", "+key, impossible("", value), nil)
			}
		}
	}
	for _, item := range contract().Paths.Map() {
		for _, o := range item.Operations() {
			for status, response := range o.Responses.Map() {
				check(o.OperationID+" "+status, response.Value.Content)
			}
			for _, callback := range o.Callbacks {
				for _, item := range callback.Value.Map() {
					check(item.Post.OperationID, item.Post.RequestBody.Value.Content)
				}
			}
		}
	}
	equal(t, "examples in use", slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(contract().Components.Examples)))
}

// plain returns a value as decoded JSON.
func plain(t testing.TB, value any) (all any) {
	t.Helper()
	text, err := json.Marshal(value)
	need(t, err)
	need(t, json.Unmarshal(text, &all))
	return all
}

// discriminators are the fields whose values determine which other fields
// exist.
var discriminators = []string{
	"status", "state", "payment_state", "type", "enabled", "locked", "disabled_reason",
	"reference", "usd_amount", "currency",
}

// shape returns the common structure of values of the same kind: fields, nulls,
// lengths of arrays, empty values, and states.
func shape(field string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := map[string]any{}
		for name, v := range value {
			fields[name] = shape(name, v)
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, v := range value {
			items[i] = shape(field, v)
		}
		return items
	case string:
		switch {
		case slices.Contains(discriminators, field) || value == "" || value == "0":
			return value
		case strings.HasPrefix(value, "***"):
			return fmt.Sprintf("%d asterisks", strings.Count(value, "*"))
		}
		return "text"
	case float64:
		switch {
		case slices.Contains(discriminators, field), field == "confirmations":
			return value
		}
		return "number"
	}
	return value // null, true or false
}
