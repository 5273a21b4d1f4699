package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestDerive_CommittedDocumentsAreFresh(t *testing.T) {
	documents, err := derive("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range documents {
		got, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not fresh: run make generate", name)
		}
	}
}

func TestConvertSchema(t *testing.T) {
	for before, after := range map[string]string{
		`{type: string, nullable: true}`:                       `{type: [string, "null"]}`,
		`{type: string, nullable: false}`:                      `{type: string}`,
		`{type: string, example: '1'}`:                         `{type: string, examples: ['1']}`,
		`{type: number, minimum: 1, exclusiveMinimum: true}`:   `{type: number, exclusiveMinimum: 1}`,
		`{type: number, maximum: 9, exclusiveMaximum: true}`:   `{type: number, exclusiveMaximum: 9}`,
		`{nullable: true}`:                                     "can't be converted",
		`{type: string, enum: [a], nullable: true}`:            "can't be converted",
		`{type: number, exclusiveMinimum: false, minimum: 1}`:  "can't be converted",
		`{type: string, format: binary}`:                       "can't be converted",
		`{type: object, additionalProperties: {type: string}}`: `{type: object, additionalProperties: {type: string}}`,
	} {
		var schema yaml.Node
		if err := yaml.Unmarshal([]byte(before), &schema); err != nil {
			t.Fatal(err)
		}
		err := convertSchema(schema.Content[0])
		got, _ := yaml.Marshal(&schema)
		switch {
		case err != nil && strings.Contains(err.Error(), after):
		case err != nil, strings.TrimSpace(string(got)) != after:
			t.Errorf("%s: %s, error %v; want %s", before, got, err, after)
		}
	}
}

// An example of a schema may itself have keys like those of a schema.
func TestWalk_LeavesExamplesAlone(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(`
components:
  schemas:
    A: {type: object, properties: {schema: {type: array, items: {oneOf: [{type: string}]}}}}
  examples:
    A: {value: {schema: {type: wrong}}}
paths:
  /a: {get: {parameters: [{schema: {type: string}, example: {schema: {type: wrong}}}]}}
`), &doc); err != nil {
		t.Fatal(err)
	}
	var types []string
	walk(doc.Content[0], func(schema *yaml.Node) {
		if kind := get(schema, "type"); kind != nil {
			types = append(types, kind.Value)
		}
	})
	if got := strings.Join(types, " "); got != "object array string string" {
		t.Errorf("schemas: %s", got)
	}
}

func TestTidyModels(t *testing.T) {
	const before = `package client

// Card A card.
type Card struct {
	// Amount How much.
	//
	//
	// Example: 1
	Amount string ` + "`json:\"amount\"`" + `

	// UUID Names the card.
	UUID string ` + "`json:\"uuid,omitempty\"`" + `
}
`
	const after = `package client

// Card is a card.
type Card struct {
	// Names the card.
	UUID string ` + "`json:\"uuid,omitempty\"`" + `

	// How much.
	//
	// Example: 1
	Amount string ` + "`json:\"amount\"`" + `
}
`
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(`components: {schemas: {Card: {properties: {uuid: {}, amount: {}}}}}`), &doc); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{before, after} {
		if got, err := tidyModels([]byte(source), doc.Content[0]); err != nil || string(got) != after {
			t.Errorf("error %v\n%s", err, got)
		}
	}
}
