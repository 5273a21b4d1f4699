package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The sources of the samples of an operation:
//
//   - curl: openapi/samples/OPERATION.sh, which a test of package server runs;
//   - Go: the body of the method's example in goExamples, which go test runs;
//   - TypeScript: client/typescript/samples/OPERATION.ts, which a test of the
//     client runs against a service.
const (
	curlSamples       = "openapi/samples"
	goExamples        = "client/example_operations_test.go"
	typescriptSamples = "client/typescript/samples"
)

// goMethods are the methods of the Go client whose name is not the operation's.
var goMethods = map[string]string{"listEvents": "Events"}

// addSamples adds x-codeSamples to each operation.
func addSamples(doc *yaml.Node, root string) error {
	examples, err := readGoExamples(filepath.Join(root, goExamples))
	if err != nil {
		return err
	}
	return operations(doc, func(id string, operation *yaml.Node) error {
		curl, err := os.ReadFile(filepath.Join(root, curlSamples, id+".sh"))
		if err != nil {
			return err
		}
		typescript, err := os.ReadFile(filepath.Join(root, typescriptSamples, id+".ts"))
		if err != nil {
			return err
		}
		method := goMethods[id]
		if method == "" {
			method = strings.ToUpper(id[:1]) + id[1:]
		}
		example := examples["ExampleClient_"+method]
		if example == "" {
			return fmt.Errorf("%s has no example of %s", goExamples, method)
		}
		set(operation, "x-codeSamples", array(
			sample("bash", "curl", string(curl)),
			sample("go", "Go", example),
			sample("typescript", "TypeScript", string(typescript)),
		))
		return nil
	})
}

func sample(lang, label, source string) *yaml.Node {
	return object("lang", lang, "label", label, "source", source)
}

// output is the comment that an example is checked by.
var output = regexp.MustCompile(`(?s)\n// (?:Unordered output|Output):.*`)

// readGoExamples returns the bodies of a file's functions, without their
// expected output.
func readGoExamples(file string) (map[string]string, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	bodies := map[string]string{}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		body := source[files.Position(f.Body.Lbrace).Offset+1 : files.Position(f.Body.Rbrace).Offset]
		tidy, err := format.Source(bytes.TrimSpace(body)) // moves it to the left
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name.Name, err)
		}
		bodies[f.Name.Name] = strings.TrimSpace(output.ReplaceAllString("\n"+string(tidy), "")) + "\n"
	}
	return bodies, nil
}
