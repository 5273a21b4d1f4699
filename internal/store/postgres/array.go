package postgres

import (
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// Array returns values as an array.
func Array[T any](values []T) driver.Valuer {
	texts := make(pq.StringArray, len(values))
	for i, v := range values {
		texts[i] = element(v).String
	}
	return texts
}

// Columns returns the columns of rows of n values, as arrays for UNNEST.
func Columns(values [][]any, n int) []any {
	args := make([]any, n)
	for i := range args {
		elements := make([]sql.NullString, len(values))
		for j, row := range values {
			elements[j] = element(row[i])
		}
		if slices.ContainsFunc(elements, func(e sql.NullString) bool { return !e.Valid }) {
			args[i] = pq.Array(elements)
			continue
		}
		texts := make(pq.StringArray, len(elements)) // takes a fifth as long
		for j, e := range elements {
			texts[j] = e.String
		}
		args[i] = texts
	}
	return args
}

// element returns a value as an element of an array, or NULL.
func element(value any) sql.NullString {
	switch value := value.(type) {
	case nil:
		return sql.NullString{}
	case []byte:
		return sql.NullString{String: `\x` + hex.EncodeToString(value), Valid: value != nil}
	case sql.NullString:
		return value
	case string:
		return sql.NullString{String: value, Valid: true}
	case int64:
		return sql.NullString{String: strconv.FormatInt(value, 10), Valid: true}
	case uuid.UUID:
		return sql.NullString{String: value.String(), Valid: true}
	case uuid.NullUUID:
		return sql.NullString{String: value.UUID.String(), Valid: value.Valid}
	case sql.NullInt64:
		return sql.NullString{String: strconv.FormatInt(value.Int64, 10), Valid: value.Valid}
	}
	return sql.NullString{String: fmt.Sprint(value), Valid: true}
}
