package failpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/failpoint"
)

// Each point is passed in the program exactly once: one that is nowhere would
// be tested in vain.
func TestNames_AreEachHitOnce(t *testing.T) {
	hits := map[string]int{}
	names := map[string]failpoint.Name{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				called, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || called.Sel.Name != "Hit" || len(n.Args) != 1 {
					return true
				}
				if of, ok := called.X.(*ast.Ident); ok && of.Name == "failpoint" {
					hits[n.Args[0].(*ast.SelectorExpr).Sel.Name]++
				}
			case *ast.ValueSpec:
				if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "Name" && file.Name.Name == "failpoint" {
					names[n.Names[0].Name] = failpoint.Name(strings.Trim(n.Values[0].(*ast.BasicLit).Value, `"`))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range names {
		if hits[name] != 1 {
			t.Errorf("%s is hit in %d places", name, hits[name])
		}
		if !slices.Contains(failpoint.Names(), value) {
			t.Errorf("%s is not among the names", value)
		}
	}
	if len(names) != len(failpoint.Names()) || len(hits) != len(names) {
		t.Errorf("%d constants, %d names, %d are hit", len(names), len(failpoint.Names()), len(hits))
	}
}
