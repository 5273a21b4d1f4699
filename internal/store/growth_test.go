package store_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The page about sharding lists every unique key of the schema without the
// account. A new one needs a rule for accounts in several databases.
func TestSchema_UniqueKeysWithoutAccount_AreDocumented(t *testing.T) {
	t.Parallel()
	var keys []string
	query(t, databases.Postgres(t), &keys, `SELECT c.relname || ' (' || string_agg(a.attname, ', ' ORDER BY k.place) || ')' FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attribute, place) JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attribute
		WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE 'goose%'
		GROUP BY c.relname, i.indexrelid HAVING COUNT(CASE WHEN a.attname = 'account_id' THEN 1 END) = 0`)
	page, err := os.ReadFile("../../docs/design/sharding.md")
	check(t, err)
	_, table, found := strings.Cut(string(page), "<!-- keys without the account -->\n")
	if !found {
		t.Fatal("the page has no such table")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var written []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\|$").FindAllStringSubmatch(table, -1) {
		written = append(written, row[1])
	}
	if !slices.IsSorted(written) {
		t.Error("the table is not sorted")
	}
	if len(keys) < 30 {
		t.Errorf("only %d keys", len(keys))
	}
	slices.Sort(keys)
	slices.Sort(written)
	if diff := cmp.Diff(keys, written); diff != "" {
		t.Errorf("documented keys (+) differ from those of the schema (-): %s", diff)
	}
}
