package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// mutant is a change of one operator.
type mutant struct {
	file         string // from the root of the module
	line, column int
	status       string // the result, as reported by gremlins
	name         string // does not depend on line numbers

	// Only for mutants that are tried:
	decl             *ast.FuncDecl
	text             string // a copy of the function with the change
	function, number int    // start at 1
}

func (m mutant) compare(other mutant) int {
	return cmp.Or(cmp.Compare(m.file, other.file), cmp.Compare(m.line, other.line), cmp.Compare(m.column, other.column))
}

// Gremlins' results for mutants.
const (
	notCovered = "NOT COVERED" // no test reaches it
	runnable   = "RUNNABLE"    // not tried yet
	killed     = "KILLED"
	lived      = "LIVED"
	timedOut   = "TIMED OUT"
)

// number makes equal names of mutants unique by their order.
func number(mutants []mutant) {
	seen := map[string]int{}
	for i := range mutants {
		m := &mutants[i]
		if seen[m.name]++; seen[m.name] > 1 {
			m.name = fmt.Sprintf("%s #%d", m.name, seen[m.name])
		}
	}
}

// changes maps gremlins' kinds of mutation and operators to the mutated
// operators.
var changes = map[string]map[token.Token]token.Token{
	"ARITHMETIC_BASE": {token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
		token.REM: token.MUL},
	"CONDITIONALS_BOUNDARY": {token.GEQ: token.GTR, token.GTR: token.GEQ, token.LEQ: token.LSS, token.LSS: token.LEQ},
	"CONDITIONALS_NEGATION": {token.EQL: token.NEQ, token.NEQ: token.EQL, token.GEQ: token.LSS, token.LSS: token.GEQ,
		token.GTR: token.LEQ, token.LEQ: token.GTR},
	"INCREMENT_DECREMENT": {token.INC: token.DEC, token.DEC: token.INC},
}

// code is a parsed package.
type code struct {
	path     string
	name     string
	dir      string
	fset     *token.FileSet
	files    map[string]*ast.File // by path from the root of the module
	importer types.Importer

	numbers map[*ast.FuncDecl]int // of functions with mutants that are tried
	copies  int
}

// load parses a package, and prepares type checks.
func load(tree, pkg string) (*code, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,DepOnly", "./"+pkg)
	cmd.Dir, cmd.Stderr = tree, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	c := &code{fset: token.NewFileSet(), files: map[string]*ast.File{}, numbers: map[*ast.FuncDecl]int{}}
	exports := map[string]string{}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly {
			continue
		}
		c.path, c.dir = p.ImportPath, p.Dir
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			c.files[path.Join(pkg, name)], c.name = file, file.Name.Name
		}
	}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c, nil
}

// describe names a mutant, and reports whether it counts: it is in a function,
// and compiles.
func (c *code) describe(m *mutant, kind string) (counts bool, err error) {
	file := c.files[m.file]
	if file == nil {
		return false, fmt.Errorf("%s is not a file of %s", m.file, c.path)
	}
	for _, decl := range file.Decls {
		f, isFunc := decl.(*ast.FuncDecl)
		if !isFunc || f.Recv == nil && f.Name.Name == "init" { // can't be called
			continue
		}
		node, op := c.operator(f, m.line, m.column)
		if node == nil {
			continue
		}
		was := *op
		to, known := changes[kind][was]
		if !known {
			return false, fmt.Errorf("%s:%d: unknown mutation %s of %s", m.file, m.line, kind, was)
		}
		before := c.print(node)
		*op = to
		m.name = fmt.Sprintf("%s %s: %s => %s", m.file, funcName(f), before, c.print(node))
		compiles := c.compiles()
		if m.status == notCovered && c.inCase(f, node) {
			m.status = runnable
		}
		if compiles && m.status == runnable {
			c.copyOf(f, m)
		}
		*op = was
		return compiles, nil
	}
	return false, nil
}

// operator returns the node of a function whose operator is at a position, and
// the operator.
func (c *code) operator(f *ast.FuncDecl, line, column int) (at ast.Node, op *token.Token) {
	ast.Inspect(f, func(n ast.Node) bool {
		var tok *token.Token
		var pos token.Pos
		switch n := n.(type) {
		case *ast.BinaryExpr:
			tok, pos = &n.Op, n.OpPos
		case *ast.UnaryExpr:
			tok, pos = &n.Op, n.OpPos
		case *ast.IncDecStmt:
			tok, pos = &n.Tok, n.TokPos
		}
		if p := c.fset.Position(pos); tok != nil && p.Line == line && p.Column == column {
			at, op = n, tok
		}
		return at == nil
	})
	return at, op
}

// inCase reports whether a node is in the expressions of a case. Go's coverage
// profiles omit those, so gremlins reports them as not covered.
func (c *code) inCase(f *ast.FuncDecl, node ast.Node) bool {
	in := false
	ast.Inspect(f, func(n ast.Node) bool {
		if clause, is := n.(*ast.CaseClause); is {
			for _, e := range clause.List {
				in = in || e.Pos() <= node.Pos() && node.End() <= e.End()
			}
		}
		return !in
	})
	return in
}

// copyOf stores a copy of a function, with its current change, for a mutant.
func (c *code) copyOf(f *ast.FuncDecl, m *mutant) {
	if c.numbers[f] == 0 {
		c.numbers[f] = len(c.numbers) + 1
	}
	c.copies++
	m.decl, m.function, m.number = f, c.numbers[f], c.copies
	name := f.Name.Name
	f.Name.Name = copyName(m.number)
	var text strings.Builder
	_ = printer.Fprint(&text, c.fset, f)
	f.Name.Name, m.text = name, text.String()
}

// original returns the path of a file.
func (c *code) original(file string) string { return c.fset.Position(c.files[file].Package).Filename }

func (c *code) offset(p token.Pos) int { return c.fset.Position(p).Offset }

// compiles reports whether the package compiles with its current change.
func (c *code) compiles() bool {
	var files []*ast.File
	for _, file := range c.files {
		files = append(files, file)
	}
	_, err := (&types.Config{Importer: c.importer}).Check(c.path, c.fset, files, nil)
	return err == nil
}

// print returns the source of a node in one line.
func (c *code) print(n ast.Node) string {
	var text strings.Builder
	_ = printer.Fprint(&text, c.fset, n)
	return strings.Join(strings.Fields(text.String()), " ")
}

// funcName returns the name of a function, or Type.Method.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, is := receiver.(*ast.StarExpr); is {
		receiver = star.X
	}
	if generic, is := receiver.(*ast.IndexExpr); is {
		receiver = generic.X
	}
	if name, is := receiver.(*ast.Ident); is {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
