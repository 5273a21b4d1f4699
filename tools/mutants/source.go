package main

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// source is a file with added mutants. Each is a copy of its function, which
// calls the copy while the mutant is active.
type source struct {
	text      string
	functions map[*ast.FuncDecl][]*mutant
}

// broken returns the text of the file with its mutants.
func (s *source) broken(c *code) string {
	inserts := map[int]string{} // by offset; replaces the text there if it is a blank
	var copies strings.Builder
	for f, mutants := range s.functions {
		call := callOf(c, f, inserts)
		var cases strings.Builder
		for _, m := range mutants {
			_, _ = fmt.Fprintf(&copies, "\n%s\n", m.text)
			_, _ = fmt.Fprintf(&cases, "\ncase %d:\n"+call, m.number, copyName(m.number))
		}
		inserts[c.offset(f.Body.Lbrace)+1] = fmt.Sprintf(" switch mutantsOf(%d) {%s\n}\n", mutants[0].function, &cases)
	}
	var text strings.Builder
	at := 0
	for _, offset := range slices.Sorted(maps.Keys(inserts)) {
		text.WriteString(s.text[at:offset])
		text.WriteString(inserts[offset])
		if at = offset; strings.HasPrefix(s.text[at:], "_") {
			at++
		}
	}
	return text.String() + s.text[at:] + copies.String()
}

// copyName is the name of a copy of a function.
func copyName(number int) string { return fmt.Sprintf("mutants%d", number) }

// callOf returns the statements that call a copy of a function and return, with
// %s for the copy's name. It names unnamed parameters.
func callOf(c *code, f *ast.FuncDecl, inserts map[int]string) string {
	call := "%s"
	if f.Recv != nil {
		call = arguments(c, f.Recv, "r", inserts)[0] + ".%s"
	}
	if f.Type.TypeParams != nil {
		var types []string
		for _, field := range f.Type.TypeParams.List {
			for _, name := range field.Names {
				types = append(types, name.Name)
			}
		}
		call += "[" + strings.Join(types, ", ") + "]"
	}
	call += "(" + strings.Join(arguments(c, f.Type.Params, "p", inserts), ", ") + ")"
	if f.Type.Results == nil {
		return call + "\nreturn"
	}
	return "return " + call
}

// arguments returns the names of parameters, as arguments of a call.
func arguments(c *code, list *ast.FieldList, prefix string, inserts map[int]string) []string {
	var args []string
	for _, field := range list.List {
		suffix := ""
		if _, variadic := field.Type.(*ast.Ellipsis); variadic {
			suffix = "..."
		}
		made := func() string { return fmt.Sprintf("mutants%s%d", prefix, len(args)) }
		if len(field.Names) == 0 {
			inserts[c.offset(field.Type.Pos())] = made() + " "
			args = append(args, made()+suffix)
		}
		for _, name := range field.Names {
			passed := name.Name
			if passed == "_" {
				passed = made()
				inserts[c.offset(name.Pos())] = passed
			}
			args = append(args, passed+suffix)
		}
	}
	return args
}
