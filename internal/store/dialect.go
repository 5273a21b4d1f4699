package store

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/cardmint/cardmint/internal/store/postgres"
	"github.com/cardmint/cardmint/internal/store/sqlite"
)

// dialect contains the differences between the two databases.
type dialect struct {
	name      string
	now       string // the database's clock, in Unix milliseconds
	uuidType  string // the type of a uuid column
	bytes     string // the type of a bytes column
	forUpdate string // locks the selected rows until the transaction ends
	// skips rows of the table w that were deleted during the statement, and
	// locks the rest against deletion
	forShare   string
	snapshot   sql.IsolationLevel // the isolation level of a transaction that reads one snapshot
	skipLocked string             // like forUpdate, for the table q, but skips rows that are already locked
	hasTable   string             // whether there is a table of that name
	// makes a JSON array of arrays of rows; the values in parentheses, and one
	// more parenthesis, follow
	jsonRows string
	arrays   bool // whether one parameter can be a whole column of values
	// an expression that names the server since its start and the table leases;
	// the empty text without a server
	server string

	isDuplicate   func(error) bool // a unique index was violated
	isRetryable   func(error) bool // the whole transaction may run again
	isUnavailable func(error) bool // the state of the database is the cause
	isBadRow      func(error) bool // a value of a row is the cause

	awaitReplication string // waits until what was committed before is as durable as commits are; "" if it always is
}

// table returns values as a table v with the columns column1, column2 and so
// on, for a FROM clause, and its parameters. If the database takes arrays,
// there is one parameter per column: a statement with thousands of parameters
// takes longer to parse than to run.
func (d dialect) table(values [][]any, types ...string) (string, []any) {
	var args []any
	if !d.arrays {
		for _, row := range values {
			args = append(args, row...)
		}
		group := "(CAST(? AS " + strings.Join(types, "), CAST(? AS ") + "))"
		return "(VALUES " + rows(group, len(values)) + ") AS v", args
	}
	unnested, names := unnest(types)
	return unnested + " AS v (" + names + ")", postgres.Columns(values, len(types))
}

// unnest returns a call that makes a table of one array for each type, and the
// names of its columns.
func unnest(types []string) (call, names string) {
	casts, columns := make([]string, len(types)), make([]string, len(types))
	for i, kind := range types {
		casts[i], columns[i] = "CAST(? AS "+kind+"[])", fmt.Sprintf("column%d", i+1)
	}
	return "UNNEST(" + strings.Join(casts, ", ") + ")", strings.Join(columns, ", ")
}

// in returns a condition that a column of a type has one of the values, and its
// parameters. If the database takes arrays, the text is the same for any number
// of values.
func in[T any](d dialect, column, kind string, values []T) (condition string, args []any) {
	if !d.arrays {
		for _, v := range values {
			args = append(args, v)
		}
		return column + " IN (" + rows("?", len(values)) + ")", args
	}
	return column + inArray(kind), []any{postgres.Array(values)}
}

// inArray is the rest of a condition that something is one of the values of a
// type in an array.
func inArray(kind string) string { return " = ANY (CAST(? AS " + kind + "[]))" }

// inSomeArray is like inArray, for a prepared statement that is planned once
// for arrays of any length. PostgreSQL does not inspect an array that a subquery
// returns. Otherwise it would consider a plan for the few values of one array
// cheaper than a plan for all, and plan the statement each time.
func inSomeArray(kind string) string {
	return " = ANY (CAST((SELECT CAST(? AS " + kind + "[])) AS " + kind + "[]))"
}

var postgresDialect = dialect{
	name:       "postgres",
	now:        "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
	uuidType:   "UUID",
	bytes:      "BYTEA",
	forUpdate:  " FOR NO KEY UPDATE", // transactions may still insert rows that refer to the locked one
	forShare:   " FOR KEY SHARE OF w",
	snapshot:   sql.LevelRepeatableRead,
	hasTable:   "SELECT to_regclass(?) IS NOT NULL",
	jsonRows:   "json_agg(json_build_array",
	arrays:     true,
	server:     "pg_relation_filepath('leases') || '/' || CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS TEXT)",
	skipLocked: " FOR NO KEY UPDATE OF q SKIP LOCKED",
	awaitReplication: `SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
		THEN CAST(pg_logical_emit_message(true, 'cardmint', '') AS TEXT) END`,
	isDuplicate:   postgres.IsDuplicate,
	isRetryable:   postgres.IsRetryable,
	isUnavailable: postgres.IsUnavailable,
	isBadRow:      postgres.IsBadRow,
}

// SQLite has one writer at a time, so its transactions lock everything and need
// no row locks.
var sqliteDialect = dialect{
	name:          "sqlite",
	now:           "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
	uuidType:      "TEXT",
	hasTable:      "SELECT COUNT(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = ?",
	bytes:         "BLOB",
	server:        "''",
	jsonRows:      "json_group_array(json_array",
	isDuplicate:   sqlite.IsDuplicate,
	isRetryable:   func(error) bool { return false },
	isUnavailable: sqlite.IsUnavailable,
	isBadRow:      sqlite.IsBadRow,
}

// by makes SQLite search a table by an index, where its planner would scan
// another index for its order. PostgreSQL chooses well without it.
func (d dialect) by(index string) string {
	if d.name == sqliteDialect.name {
		return " INDEXED BY " + index
	}
	return ""
}
