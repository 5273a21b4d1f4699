package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/tools/go/packages"
)

// loaded is a package with its imports.
type loaded struct {
	*packages.Package
	imports map[string]*types.Package // by path, also indirect ones
}

// load reads the package in dir.
func load(dir string) (*loaded, error) {
	all, err := packages.Load(
		&packages.Config{Dir: dir, Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes |
			packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile}, ".")
	if err != nil {
		return nil, err
	}
	if len(all) != 1 || len(all[0].Errors) > 0 {
		return nil, fmt.Errorf("load %s: %d packages, %v", dir, len(all), all[0].Errors)
	}
	p := &loaded{all[0], map[string]*types.Package{}}
	p.add(p.Types)
	return p, nil
}

// add adds the imports of a package.
func (p *loaded) add(of *types.Package) {
	for _, i := range of.Imports() {
		if p.imports[i.Path()] == nil {
			p.imports[i.Path()] = i
			p.add(i)
		}
	}
}

// Import implements types.Importer.
func (p *loaded) Import(path string) (*types.Package, error) {
	if i, ok := p.imports[path]; ok {
		return i, nil
	}
	return nil, fmt.Errorf("the package no longer imports %s", path)
}

// check parses and type-checks a stub. Types of other packages are the current
// ones.
func (p *loaded) check(text []byte) (*types.Package, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, apiFile, text, 0)
	if err != nil {
		return nil, err
	}
	config := types.Config{Importer: p, IgnoreFuncBodies: true}
	return config.Check(p.PkgPath, fset, []*ast.File{file}, nil)
}

// stub is a package's source without comments, function bodies, functions that
// are not exported, and the values of variables.
func stub(p *loaded) ([]byte, error) {
	var body bytes.Buffer
	used := map[string]bool{}
	qualify := func(other *types.Package) string {
		if other == p.Types {
			return ""
		}
		used[other.Path()] = true
		return other.Name()
	}
	for _, file := range p.Syntax {
		for _, d := range file.Decls {
			kept := keep(p, d, qualify)
			if kept == nil {
				continue
			}
			ast.Inspect(kept, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if name, ok := p.TypesInfo.Uses[id].(*types.PkgName); ok {
						used[name.Imported().Path()] = true
					}
				}
				return true
			})
			// Without positions, no comments and blank lines are printed.
			if err := (&printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}).Fprint(&body, p.Fset,
				kept); err != nil {
				return nil, err
			}
			body.WriteString("\n\n")
		}
	}
	var whole bytes.Buffer
	fmt.Fprintf(&whole, "package %s\n\nimport (\n", p.Name)
	for _, path := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&whole, "\t%s\n", strconv.Quote(path))
	}
	fmt.Fprintf(&whole, ")\n\n%s", body.Bytes())
	text, err := format.Source(whole.Bytes())
	if err != nil {
		return nil, err
	}
	if _, err := p.check(text); err != nil { // fails early if it can't be parsed again
		return nil, fmt.Errorf("check the stub: %w", err)
	}
	return text, nil
}

// keep returns the part of a declaration that belongs to the stub; nil if none
// does.
func keep(p *loaded, d ast.Decl, qualify types.Qualifier) ast.Node {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && !d.Name.IsExported() {
			return nil
		}
		return &ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type}
	case *ast.GenDecl:
		switch d.Tok {
		case token.IMPORT:
			return nil
		case token.VAR:
			return keepVars(p, d, qualify)
		}
		return uncommented(d)
	}
	return nil
}

// keepVars returns the exported variables of a declaration with their types.
func keepVars(p *loaded, d *ast.GenDecl, qualify types.Qualifier) ast.Node {
	vars := &ast.GenDecl{Tok: token.VAR, Lparen: 1}
	for _, spec := range d.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			if name.IsExported() {
				of, err := parser.ParseExpr(types.TypeString(p.TypesInfo.Defs[name].Type(), qualify))
				if err != nil {
					panic(err) // can't happen: it compiles
				}
				vars.Specs = append(vars.Specs, &ast.ValueSpec{Names: []*ast.Ident{ast.NewIdent(name.Name)}, Type: of})
			}
		}
	}
	if len(vars.Specs) == 0 {
		return nil
	}
	return vars
}

// uncommented removes the comments of a declaration of types or constants.
func uncommented(d *ast.GenDecl) ast.Node {
	ast.Inspect(d, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.GenDecl:
			x.Doc = nil
		case *ast.TypeSpec:
			x.Doc, x.Comment = nil, nil
		case *ast.ValueSpec:
			x.Doc, x.Comment = nil, nil
		case *ast.Field:
			x.Doc, x.Comment = nil, nil
		}
		return true
	})
	return d
}
