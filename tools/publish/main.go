// Command publish derives the published documents from the hand-written
// contract, openapi/openapi.yaml:
//
//   - openapi/openapi.gen.yaml is the same document with code samples;
//   - openapi/openapi-3.1.gen.yaml is the same in OpenAPI 3.1, with a webhook
//     and a schema for each type of event.
//
// It also tidies the generated types of the Go client, see gocomments.go.
//
// Its argument is the root of the repository. Code samples are taken from files
// that tests execute: see samples.go.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

const header = "# Code generated from openapi.yaml by tools/publish. DO NOT EDIT.\n"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: publish ROOT")
	}
	if err := write(os.Args[1]); err != nil {
		log.Fatal("publish: ", err)
	}
}

// write writes the derived files.
func write(root string) error {
	documents, err := derive(root)
	if err != nil {
		return err
	}
	for name, text := range documents {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// derive returns the files by name.
func derive(root string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, "openapi/openapi.yaml"))
	if err != nil {
		return nil, err
	}
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	doc := file.Content[0]
	models, err := os.ReadFile(filepath.Join(root, goModels))
	if err != nil {
		return nil, err
	}
	if models, err = tidyModels(models, doc); err != nil {
		return nil, err
	}
	if err := addSamples(doc, root); err != nil {
		return nil, err
	}
	removeGoTypes(doc)
	v30, err := encode(doc)
	if err != nil {
		return nil, err
	}
	if err := convert(doc); err != nil {
		return nil, err
	}
	v31, err := encode(doc)
	return map[string][]byte{"openapi/openapi.gen.yaml": v30, "openapi/openapi-3.1.gen.yaml": v31, goModels: models}, err
}

func encode(doc *yaml.Node) ([]byte, error) {
	out := bytes.NewBufferString(header)
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	err := e.Encode(doc)
	return out.Bytes(), err
}

// get returns the value of a path of keys, or nil.
func get(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		found := (*yaml.Node)(nil)
		if n != nil && n.Kind == yaml.MappingNode {
			for i := 0; i < len(n.Content); i += 2 {
				if n.Content[i].Value == key {
					found = n.Content[i+1]
				}
			}
		}
		n = found
	}
	return n
}

// set adds a key to a mapping, or replaces its value.
func set(n *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, text(key), value)
}

// remove removes a key from a mapping and returns its value, or nil.
func remove(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			value := n.Content[i+1]
			n.Content = append(n.Content[:i:i], n.Content[i+2:]...)
			return value
		}
	}
	return nil
}

// each calls f with the entries of a mapping, in order.
func each(n *yaml.Node, f func(key string, value *yaml.Node)) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i < len(n.Content); i += 2 {
		f(n.Content[i].Value, n.Content[i+1])
	}
}

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// object returns a mapping of these keys and values, in order.
func object(entries ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(entries); i += 2 {
		value, ok := entries[i+1].(*yaml.Node)
		if !ok {
			value = text(entries[i+1].(string))
		}
		set(n, entries[i].(string), value)
	}
	return n
}

func array(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Content: items}
}

func ref(to string) *yaml.Node {
	n := object("$ref", to)
	n.Style = yaml.FlowStyle
	return n
}

// clone returns a deep copy.
func clone(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = clone(child)
	}
	return &c
}

// operations calls f with each operation of the paths.
func operations(doc *yaml.Node, f func(id string, operation *yaml.Node) error) (err error) {
	each(get(doc, "paths"), func(_ string, item *yaml.Node) {
		each(item, func(_ string, operation *yaml.Node) {
			if id := get(operation, "operationId"); id != nil && err == nil {
				if err = f(id.Value, operation); err != nil {
					err = fmt.Errorf("%s: %w", id.Value, err)
				}
			}
		})
	})
	return err
}

// removeGoTypes removes what only the generator of Go code reads.
func removeGoTypes(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		remove(n, "x-go-type")
	}
	for _, child := range n.Content {
		removeGoTypes(child)
	}
}
