package store_test

import (
	stdcmp "cmp"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:generate go test -tags=nomsgpack -count=1 -run ^TestStatements_AreThoseInTestdata$ -update .

var update = flag.Bool("update", false, "write testdata/statements instead of comparing with it")

// statementCards is how many cards the database has. More cards make no other
// statements.
const statementCards = 2000

// testdata/statements shows each statement of the store as each database gets
// it.
func TestStatements_AreThoseInTestdata(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, url string) {
		name := "postgres"
		if strings.HasPrefix(url, "sqlite:") {
			name = "sqlite"
		}
		fillPlans(t, url, statementCards)
		m := &meter{statements: map[string]map[string]bool{}}
		measureWith(t, m, url, statementCards, func(c *calls) {
			c.together()
			c.methods()
		})
		got, path := m.text(), filepath.Join("testdata", "statements", name+".gen.sql")
		if *update {
			check(t, os.WriteFile(path, []byte(got), 0o600))
			return
		}
		want, err := os.ReadFile(path)
		check(t, err)
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("run go generate ./internal/store: %s", diff)
		}
	})
}

// valueRows matches a VALUES list of any length. The length depends on how many
// calls share a statement.
var valueRows = regexp.MustCompile(`(VALUES \((?:CAST\(\? AS \w+\)(?:, )?)+\))(?:, \((?:CAST\(\? AS \w+\)(?:, )?)+\))*`)

// record notes a statement of the current method.
func (m *meter) record(query string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	method, _, _ := strings.Cut(m.method, " ")
	if m.statements[method] == nil {
		m.statements[method] = map[string]bool{}
	}
	query = strings.Join(strings.Fields(query), " ")
	m.statements[method][valueRows.ReplaceAllString(query, "$1, ...")] = true
}

// text returns the statements by method, in lines of up to 100 characters.
func (m *meter) text() string {
	text := "-- Written by go generate ./internal/store; do not edit.\n"
	for _, method := range slices.Sorted(maps.Keys(m.statements)) {
		text += "\n-- " + stdcmp.Or(method, "Open") + "\n"
		for _, query := range slices.Sorted(maps.Keys(m.statements[method])) {
			text += wrapped(query, 100) + ";\n"
		}
	}
	return text
}

// clauses begin a line of a statement.
var clauses = []string{"FROM", "WHERE", "SET", "VALUES", "LEFT", "JOIN", "GROUP", "ORDER", "LIMIT", "UNION", "RETURNING"}

// wrapped returns a statement with a line for each clause, and no line longer
// than width.
func wrapped(query string, width int) string {
	var lines []string
	line, depth := "", 0
	for word := range strings.FieldsSeq(query) {
		clause := depth == 0 && slices.Contains(clauses, word) && !strings.HasSuffix(line, "LEFT")
		switch {
		case line == "":
			line = word
		case clause || len(line)+1+len(word) > width:
			lines, line = append(lines, line), "    "+word
		default:
			line += " " + word
		}
		depth += strings.Count(word, "(") - strings.Count(word, ")")
	}
	return strings.Join(append(lines, line), "\n")
}
