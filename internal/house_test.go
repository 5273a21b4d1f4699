package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	mostMethods   = 15  // of a port, and that an actor exports
	longestFunc   = 65  // lines, of code that is written by hand
	longestFile   = 800 // lines, likewise
	largestDomain = 1700
)

// eachFile calls f with every file of Go that is written by hand and not a
// test.
func eachFile(t *testing.T, f func(path string, lines int, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	n := 0
	for _, root := range []string{".", "../server", "../client", "../cmd", "../tools"} {
		err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(path, ".gen.go") ||
				strings.Contains(path, "node_modules") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, text, 0)
			if err == nil {
				n++
				f(path, strings.Count(string(text), "\n"), fset, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 80 {
		t.Fatalf("only %d files were looked at", n)
	}
}

func TestHouse_FilesAndFunctionsAreShort(t *testing.T) {
	eachFile(t, func(path string, lines int, fset *token.FileSet, file *ast.File) {
		if lines > longestFile {
			t.Errorf("%s has %d lines", path, lines)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1; n > longestFunc {
					t.Errorf("%s: %s has %d lines", path, f.Name.Name, n)
				}
			}
		}
	})
}

// The domain is vocabulary and pure rules: it waits for nothing, asks nobody,
// and does not know what time it is.
func TestHouse_TheDomainIsPure(t *testing.T) {
	domain := 0
	eachFile(t, func(path string, lines int, fset *token.FileSet, file *ast.File) {
		if filepath.Dir(path) != "card" {
			return
		}
		domain += lines
		for _, i := range file.Imports {
			switch name := strings.Trim(i.Path.Value, `"`); name {
			case "context", "os", "io/fs", "net", "net/http", "sync", "sync/atomic", "database/sql", "math/rand",
				"math/rand/v2", "crypto/rand":
				t.Errorf("%s imports %s", path, name)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", fset.Position(x.Pos()))
			case *ast.SelectorExpr:
				of, _ := x.X.(*ast.Ident)
				if of != nil &&
					slices.Contains([]string{"time.Now", "time.Since", "time.Until", "uuid.New", "uuid.NewV7", "slog.Default"},
						of.Name+"."+x.Sel.Name) {
					t.Errorf("%s asks %s.%s", fset.Position(x.Pos()), of.Name, x.Sel.Name)
				}
			}
			return true
		})
	})
	if domain == 0 || domain > largestDomain {
		t.Errorf("the domain has %d lines", domain)
	}
}

func TestHouse_PortsAndActorsAreSmall(t *testing.T) {
	actors := []string{"account", "issue", "keys", "limit", "operator", "order", "settle", "webhook"}
	exported := map[string]int{} // methods, by type
	ports := map[string]*ast.InterfaceType{}
	eachFile(t, func(path string, _ int, _ *token.FileSet, file *ast.File) {
		if !slices.Contains(actors, filepath.Dir(path)) {
			return
		}
		for _, d := range file.Decls {
			switch x := d.(type) {
			case *ast.FuncDecl:
				if x.Recv != nil && x.Name.IsExported() {
					if star, ok := x.Recv.List[0].Type.(*ast.StarExpr); ok {
						exported[filepath.Dir(path)+"."+star.X.(*ast.Ident).Name]++
					}
				}
			case *ast.GenDecl:
				for _, spec := range x.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						if port, ok := s.Type.(*ast.InterfaceType); ok {
							ports[filepath.Dir(path)+"."+s.Name.Name] = port
						}
					}
				}
			}
		}
	})
	if len(exported) < len(actors) || len(ports) < len(actors) {
		t.Errorf("only %d types with methods and %d interfaces were found", len(exported), len(ports))
	}
	for name := range ports {
		if n := methods(ports, name); n > mostMethods {
			t.Errorf("%s has %d methods", name, n)
		}
	}
	for name, n := range exported {
		if n > mostMethods {
			t.Errorf("%s exports %d methods", name, n)
		}
	}
}

// A map of a house that has been rebuilt leads nowhere.
func TestREADME_NamesFilesThatExist(t *testing.T) {
	n := 0
	for _, page := range []string{"README.md", "docs/CONTRIBUTING.md"} {
		for _, found := range regexp.MustCompile(
			"`((?:openapi|server|client|internal|cmd|tools|docs)(?:/[A-Za-z0-9_.-]+)+)`").FindAllStringSubmatch(text(t, page),
			-1) {
			n++
			if _, err := os.Stat(filepath.Join("..", found[1])); err != nil {
				t.Errorf("%s names %s: %v", page, found[1], err)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d names were found", n)
	}
}

// The README and the quick start show whole programs, which other tests run.
func TestREADME_ShowsTheExamples(t *testing.T) {
	examples := map[string]string{
		"go": "client/examples/quickstart/main.go",
		"ts": "client/typescript/example/quickstart.ts",
	}
	for _, page := range []string{"README.md", "docs/guides/quickstart.md"} {
		for language, path := range examples {
			if !strings.Contains(text(t, page), "```"+language+"\n"+text(t, path)+"```\n") {
				t.Errorf("%s does not show %s", page, path)
			}
		}
	}
}

// text returns a file of the repository.
func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// methods returns how many methods an interface has, with those of the
// interfaces of its package that are embedded in it.
func methods(interfaces map[string]*ast.InterfaceType, name string) (n int) {
	pkg, _, _ := strings.Cut(name, ".")
	for _, m := range interfaces[name].Methods.List {
		if embedded, ok := m.Type.(*ast.Ident); ok {
			n += methods(interfaces, pkg+"."+embedded.Name)
			continue
		}
		n += len(m.Names)
	}
	return n
}
