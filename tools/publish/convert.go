package main

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// convert converts a document from OpenAPI 3.0 to 3.1, and adds webhooks.
func convert(doc *yaml.Node) error {
	set(doc, "openapi", text("3.1.0"))
	if err := addWebhooks(doc); err != nil {
		return err
	}
	var err error
	walk(doc, func(schema *yaml.Node) {
		if e := convertSchema(schema); e != nil && err == nil {
			err = e
		}
	})
	return err
}

// walk calls f with each schema below n, which is not part of one, the outer
// ones first. Examples are values, not schemas.
func walk(n *yaml.Node, f func(schema *yaml.Node)) {
	if n.Kind == yaml.SequenceNode {
		for _, child := range n.Content {
			walk(child, f)
		}
		return
	}
	each(n, func(key string, value *yaml.Node) {
		switch key {
		case "schema":
			walkSchema(value, f)
		case "schemas":
			each(value, func(_ string, schema *yaml.Node) { walkSchema(schema, f) })
		case "example", "examples":
		default:
			walk(value, f)
		}
	})
}

func walkSchema(schema *yaml.Node, f func(schema *yaml.Node)) {
	f(schema)
	each(schema, func(key string, value *yaml.Node) {
		switch key {
		case "properties":
			each(value, func(_ string, property *yaml.Node) { walkSchema(property, f) })
		case "items", "not", "additionalProperties":
			walkSchema(value, f) // does nothing with true and false
		case "oneOf", "anyOf", "allOf":
			for _, one := range value.Content {
				walkSchema(one, f)
			}
		}
	})
}

// convertSchema replaces the keywords that JSON Schema does not have. It fails
// where it would have to guess.
func convertSchema(schema *yaml.Node) error {
	if schema.Kind != yaml.MappingNode {
		return nil
	}
	if example := remove(schema, "example"); example != nil {
		examples := array(example)
		examples.Style = schema.Style
		set(schema, "examples", examples)
	}
	for _, bound := range []string{"Minimum", "Maximum"} {
		if exclusive := get(schema, "exclusive"+bound); exclusive != nil {
			value := remove(schema, strings.ToLower(bound))
			if exclusive.Value != "true" || value == nil {
				return fmt.Errorf("line %d: exclusive%s can't be converted", exclusive.Line, bound)
			}
			set(schema, "exclusive"+bound, value)
		}
	}
	if nullable := remove(schema, "nullable"); nullable != nil && nullable.Value == "true" {
		kind := get(schema, "type")
		if kind == nil || get(schema, "enum") != nil {
			return fmt.Errorf("line %d: nullable can't be converted", nullable.Line)
		}
		null := text("null")
		null.Style = yaml.DoubleQuotedStyle
		kinds := array(text(kind.Value), null)
		kinds.Style = yaml.FlowStyle
		set(schema, "type", kinds)
	}
	for _, format := range []string{"byte", "binary"} {
		if f := get(schema, "format"); f != nil && f.Value == format {
			return fmt.Errorf("line %d: the format %s can't be converted", f.Line, format)
		}
	}
	return nil
}
