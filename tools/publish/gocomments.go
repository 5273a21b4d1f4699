package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// goModels is the generated part of the Go client.
const goModels = "client/client.gen.go"

// tidyModels puts the fields of generated Go types into the order of the
// contract, and makes their comments read like those of other Go code. It
// leaves a tidy file as it is.
func tidyModels(source []byte, doc *yaml.Node) ([]byte, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "", source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	offset := func(p token.Pos) int { return files.Position(p).Offset }
	var out bytes.Buffer
	written := 0
	for _, d := range parsed.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE || len(decl.Specs) != 1 {
			continue
		}
		spec := decl.Specs[0].(*ast.TypeSpec)
		if decl.Doc != nil {
			out.Write(source[written:offset(decl.Doc.Pos())])
			out.WriteString(typeComment(string(source[offset(decl.Doc.Pos()):offset(decl.Doc.End())]), spec.Name.Name))
			written = offset(decl.Doc.End())
		}
		body, ok := spec.Type.(*ast.StructType)
		if !ok || len(body.Fields.List) == 0 {
			continue
		}
		var order []string
		each(get(doc, "components", "schemas", spec.Name.Name, "properties"), func(name string, _ *yaml.Node) { order = append(order, name) })
		fields := slices.Clone(body.Fields.List)
		place := func(f *ast.Field) int {
			if f.Tag == nil {
				return -1
			}
			name := jsonName.FindStringSubmatch(f.Tag.Value)
			return slices.Index(order, name[1])
		}
		slices.SortStableFunc(fields, func(a, b *ast.Field) int { return cmp.Compare(place(a), place(b)) })
		out.Write(source[written : offset(body.Fields.Opening)+1])
		for i, f := range fields {
			if i > 0 && (f.Doc != nil || fields[i-1].Doc != nil) {
				out.WriteByte('\n')
			}
			if f.Doc != nil {
				comment := string(source[offset(f.Doc.Pos()):offset(f.Doc.End())])
				out.WriteString("\n\t" + fieldComment(comment, f.Names[0].Name))
			}
			out.WriteString("\n\t")
			out.Write(source[offset(f.Names[0].Pos()):offset(f.End())])
		}
		out.WriteByte('\n')
		written = offset(body.Fields.Closing)
	}
	out.Write(source[written:])
	return format.Source(out.Bytes())
}

var (
	jsonName = regexp.MustCompile(`json:"([^",]*)`)
	// blanks are the empty lines between a description that ends with a line
	// break and its example.
	blanks = regexp.MustCompile(`(?:\n\s*// *)+\n(\s*// *\S)`)
)

// typeComment turns "Name A thing." into "Name is a thing."
func typeComment(comment, name string) string {
	text, found := strings.CutPrefix(comment, "// "+name+" ")
	if !found || !unicode.IsUpper([]rune(text)[0]) {
		return comment
	}
	return "// " + name + " is " + strings.ToLower(text[:1]) + collapse(text[1:])
}

// fieldComment turns "Name The thing." into "The thing."
func fieldComment(comment, name string) string {
	text, found := strings.CutPrefix(comment, "// "+name+" ")
	if !found {
		return collapse(comment)
	}
	return "// " + strings.ToUpper(text[:1]) + collapse(text[1:])
}

func collapse(comment string) string { return blanks.ReplaceAllString(comment, "\n//\n$1") }
