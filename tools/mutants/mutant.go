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
	status       string // gremlins' word for what became of it
	name         string // the same after its lines have moved
}

func (m mutant) compare(other mutant) int {
	return cmp.Or(cmp.Compare(m.file, other.file), cmp.Compare(m.line, other.line), cmp.Compare(m.column, other.column))
}

// notCovered is gremlins' word for a mutant that no test reaches.
const notCovered = "NOT COVERED"

// number tells mutants of the same name apart by their order.
func number(mutants []mutant) {
	seen := map[string]int{}
	for i := range mutants {
		m := &mutants[i]
		if seen[m.name]++; seen[m.name] > 1 {
			m.name = fmt.Sprintf("%s #%d", m.name, seen[m.name])
		}
	}
}

// changes is what gremlins' kinds of mutation make of an operator.
var changes = map[string]map[token.Token]token.Token{
	"ARITHMETIC_BASE":       {token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL},
	"CONDITIONALS_BOUNDARY": {token.GEQ: token.GTR, token.GTR: token.GEQ, token.LEQ: token.LSS, token.LSS: token.LEQ},
	"CONDITIONALS_NEGATION": {token.EQL: token.NEQ, token.NEQ: token.EQL, token.GEQ: token.LSS, token.LSS: token.GEQ,
		token.GTR: token.LEQ, token.LEQ: token.GTR},
	"INCREMENT_DECREMENT": {token.INC: token.DEC, token.DEC: token.INC},
}

// code is a package, parsed.
type code struct {
	path     string
	fset     *token.FileSet
	files    map[string]*ast.File // by path from the root of the module
	importer types.Importer
}

// load parses a package, and prepares to check its types.
func load(tree, pkg string) (*code, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,DepOnly", "./"+pkg)
	cmd.Dir, cmd.Stderr = tree, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	c := &code{fset: token.NewFileSet(), files: map[string]*ast.File{}}
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
		c.path = p.ImportPath
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			c.files[path.Join(pkg, name)] = file
		}
	}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c, nil
}

// describe names a mutant, and reports whether it counts: it is in a function, and compiles.
func (c *code) describe(m *mutant, kind string) (counts bool, err error) {
	file := c.files[m.file]
	if file == nil {
		return false, fmt.Errorf("%s is not a file of %s", m.file, c.path)
	}
	for _, decl := range file.Decls {
		f, isFunc := decl.(*ast.FuncDecl)
		if !isFunc {
			continue
		}
		node, op := c.operator(f, m.line, m.column)
		if node == nil {
			continue
		}
		was := *op
		to, known := changes[kind][was]
		if !known {
			return false, fmt.Errorf("%s:%d: %s of %s is unknown", m.file, m.line, kind, was)
		}
		before := c.print(node)
		*op = to
		m.name = fmt.Sprintf("%s %s: %s => %s", m.file, funcName(f), before, c.print(node))
		compiles := c.compiles()
		if compiles && m.status == notCovered && c.inCase(f, node) {
			m.status, err = c.try(m.file)
		}
		*op = was
		return compiles, err
	}
	return false, nil
}

// operator returns the node of a function whose operator stands at a place, and the operator.
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

// inCase reports whether a node stands in the expressions of a case, which Go's profiles of coverage leave out: gremlins takes them for not
// covered, and never breaks them.
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

// try runs the package's tests with a file as it is now, and returns gremlins' word for what became of it.
func (c *code) try(file string) (status string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var text bytes.Buffer
	if err := printer.Fprint(&text, c.fset, c.files[file]); err != nil {
		return "", err
	}
	broken, original := filepath.Join(dir, "broken.go"), c.fset.Position(c.files[file].Package).Filename
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: broken}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(broken, text.Bytes(), 0o600), os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)); err != nil {
		return "", err
	}
	test := exec.Command("go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-short", "-count=1", "-vet=off", "-failfast", "-timeout=2m", ".")
	test.Dir = filepath.Dir(original)
	if _, failed := errors.AsType[*exec.ExitError](test.Run()); failed {
		return "KILLED", nil
	}
	return "LIVED", nil
}

// compiles reports whether the package does, as it is now.
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
