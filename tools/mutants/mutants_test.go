package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDescribe_NamesWhatCounts(t *testing.T) {
	tree := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"p/p.go": `package p

const limit = 2 * 3

type T struct{ n int }

func (t *T) Add(a, b int, s string) string {
	if a > limit ||
		b > limit {
		t.n = -a
	}
	t.n++
	return s + "x"
}

func Twice(a int) bool { return a == 1 || !(a == 1) }
`,
	} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := load(tree, "p")
	if err != nil {
		t.Fatal(err)
	}
	var got []mutant
	for _, x := range []struct {
		kind         string
		line, column int
	}{
		{"ARITHMETIC_BASE", 3, 17}, // a constant
		{"CONDITIONALS_BOUNDARY", 8, 7},
		{"CONDITIONALS_NEGATION", 9, 5},
		{"ARITHMETIC_BASE", 10, 9},
		{"INCREMENT_DECREMENT", 12, 5},
		{"ARITHMETIC_BASE", 13, 11}, // does not compile
		{"CONDITIONALS_NEGATION", 16, 35},
		{"CONDITIONALS_NEGATION", 16, 47},
	} {
		m := mutant{file: "p/p.go", line: x.line, column: x.column}
		counts, err := p.describe(&m, x.kind)
		if err != nil {
			t.Fatal(err)
		}
		if counts {
			got = append(got, m)
		}
	}
	number(got)
	var names []string
	for _, m := range got {
		names = append(names, m.name)
	}
	want := []string{
		"p/p.go T.Add: a > limit => a >= limit",
		"p/p.go T.Add: b > limit => b <= limit",
		"p/p.go T.Add: -a => +a",
		"p/p.go T.Add: t.n++ => t.n--",
		"p/p.go Twice: a == 1 => a != 1",
		"p/p.go Twice: a == 1 => a != 1 #2",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestCount_ListedSurvivorsAreFine(t *testing.T) {
	may, err := parseSurvivors(
		"# comment\n\na/x.go F: i > 0 => i >= 0 -- i is never 0\na/x.go G: i++ => i-- -- gone\nb/x.go F: i++ => i-- -- elsewhere\n")
	if err != nil {
		t.Fatal(err)
	}
	mutants := []mutant{
		{status: "KILLED"}, {status: "KILLED"}, {status: "TIMED OUT"}, {status: "NOT COVERED"},
		{status: "LIVED", name: "a/x.go F: i > 0 => i >= 0"}, {status: "LIVED", name: "a/x.go F: j > 0 => j >= 0"},
	}
	got := count("a", mutants, may)
	want := tally{pkg: "a", killed: 2, timedOut: 1, lived: 2, listed: 1, coverage: 500.0 / 6, efficacy: 80,
		survivors: mutants[5:], uncovered: mutants[3:4], gone: []string{"a/x.go G: i++ => i--"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tally{}, mutant{})); diff != "" {
		t.Error(diff)
	}
}

func TestFaults_OneUnlistedSurvivorIsOneTooMany(t *testing.T) {
	for name, tt := range map[string]struct {
		tally tally
		want  []string
	}{
		"all is well": {tally{coverage: 80, efficacy: 95, lived: 1, listed: 1}, nil},
		"one is not listed": {tally{coverage: 100, efficacy: 99, lived: 2, listed: 1, survivors: make([]mutant, 1)},
			[]string{"1 lived that are not listed"}},
		"too little is tried": {tally{coverage: 79.9, efficacy: 100},
			[]string{"the tests reach 79.9 % of the mutants, want 80 %"}},
		"too much lives": {tally{coverage: 100, efficacy: 50, lived: 1, survivors: make([]mutant, 1)},
			[]string{"50.0 % of those that are reached are killed or listed, want 95 %", "1 lived that are not listed"}},
	} {
		if diff := cmp.Diff(tt.want, tt.tally.faults()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestParseSurvivors_NeedsAReasonForEach(t *testing.T) {
	for _, text := range []string{"a/x.go F: i++ => i--\n", "a/x.go F: i++ => i-- -- \n",
		"a/x.go F: i++ => i-- -- x\na/x.go F: i++ => i-- -- y\n"} {
		if _, err := parseSurvivors(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// Go's coverage profiles omit the expressions of a case, so these mutants are
// tried as well.
func TestDescribe_BreaksTheExpressionsOfACase(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: compiles tests")
	}
	tree := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.com/m\n\ngo 1.26\n",
		"p/p.go":      "package p\n\nfunc Sign(n int) int {\n\tswitch {\n\tcase n < 0:\n\t\treturn -1\n\tcase n > 9:\n\t\treturn 2\n\t}\n\treturn 1\n}\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestSign(t *testing.T) {\n\tif Sign(-1) != -1 || Sign(0) != 1 || Sign(10) != 2 {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := load(tree, "p")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		line   int
		status string
	}{{5, killed}, {7, lived}} { // the boundary is not tested
		m := []mutant{{file: "p/p.go", line: x.line, column: 9, status: notCovered}}
		counts, err := p.describe(&m[0], "CONDITIONALS_BOUNDARY")
		if err := errors.Join(err, p.tryAll(m, time.Second)); err != nil || !counts || m[0].status != x.status {
			t.Errorf("line %d: %s, counts %t, error %v", x.line, m[0].status, counts, err)
		}
	}
}

// The functions here cover all features that make calling a copy difficult.
func TestTryAll_TellsWhatTheTestsNotice(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: compiles tests, and waits for a timeout")
	}
	tree := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"p/p.go": `package p

type T[N int | int64] struct{ n N }

func (t *T[N]) Add(_ string, more ...N) (sum N) {
	for _, n := range more { t.n = t.n + n }
	return t.n
}

func (T[N]) Zero(int, ...string) bool { return 1 > 0 }

func Most[A, B int | int64](a A, b B) int64 { if int64(a) > int64(b) { return int64(a) }; return int64(b) }

func count(into *int, _, _ bool) { *into++ }

func Loop(n int) (steps int) {
	for i := 0; i < n; i++ {
		steps++
	}
	return steps
}

func Kind(n int) string {
	switch {
	case n == 1:
		return "one"
	}
	return "many"
}

func init() { broken = 1 > 2 }

var broken bool
`,
		"p/p_test.go": `package p

import "testing"

func TestAll(t *testing.T) {
	var n int
	count(&n, true, false)
	if x := new(T[int64]); x.Add("", 1, 2) != 3 || n != 1 || Loop(3) != 3 || broken || Kind(1) != "one" {
		t.Error("wrong")
	}
	Most(1, int64(2))
	T[int]{}.Zero(1, "2", "3")
}

func TestFailsByItself(t *testing.T) { t.Error("always") }
`,
	} {
		path := filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := load(tree, "p")
	if err != nil {
		t.Fatal(err)
	}
	var mutants []mutant
	for _, x := range []struct {
		kind, status string
		line, column int
	}{
		{"ARITHMETIC_BASE", runnable, 6, 37},
		{"CONDITIONALS_BOUNDARY", runnable, 10, 50},
		{"CONDITIONALS_BOUNDARY", runnable, 12, 59},
		{"INCREMENT_DECREMENT", runnable, 14, 41},
		{"INCREMENT_DECREMENT", runnable, 17, 22},
		{"CONDITIONALS_NEGATION", notCovered, 25, 9}, // in a case
		{"CONDITIONALS_NEGATION", runnable, 31, 26},  // in a function that can't be called
	} {
		m := mutant{file: "p/p.go", line: x.line, column: x.column, status: x.status}
		counts, err := p.describe(&m, x.kind)
		if err != nil {
			t.Fatal(err)
		}
		if counts {
			mutants = append(mutants, m)
		}
	}
	if err := p.tryAll(mutants, time.Second); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mutants {
		got = append(got, m.status+" "+m.name)
	}
	want := []string{
		"KILLED p/p.go T.Add: t.n + n => t.n - n",
		"LIVED p/p.go T.Zero: 1 > 0 => 1 >= 0",
		"LIVED p/p.go Most: int64(a) > int64(b) => int64(a) >= int64(b)",
		"KILLED p/p.go count: *into++ => *into--",
		"TIMED OUT p/p.go Loop: i++ => i--",
		"KILLED p/p.go Kind: n == 1 => n != 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
