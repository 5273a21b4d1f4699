// Package sqlite connects to SQLite with modernc.org/sqlite: it opens files,
// keeps statements compiled and classifies errors.
//
// It imports no other package of cardmint and knows no tables. Every commit is
// synced to disk.
package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"

	"github.com/jmoiron/sqlx"
	modernc "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

func init() {
	sqlx.BindDriver("sqlite", sqlx.QUESTION) // sqlx does not know the name of modernc's driver
}

// ErrLocked means that a process has the database open.
var ErrLocked = errors.New("a process has the database open")

// Parameters of NewConnector.
const (
	ReadWrite = "_txlock=immediate"
	ReadOnly  = "_pragma=query_only(1)"
)

// NewConnector returns a connector for the database at path. params is
// ReadWrite or ReadOnly.
func NewConnector(path, params string) (driver.Connector, error) {
	c, err := modernc.NewConnector(fileURI(path, params) +
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	return cachingConnector{c}, nil
}

// Open opens the database at path: one connection that writes and up to conns
// that read.
func Open(path string, conns int) (writer, reader *sqlx.DB, err error) {
	w, err := NewConnector(path, ReadWrite)
	if err != nil {
		return nil, nil, err
	}
	r, err := NewConnector(path, ReadOnly)
	if err != nil {
		return nil, nil, err
	}
	writer, reader = sqlx.NewDb(sql.OpenDB(w), "sqlite"), sqlx.NewDb(sql.OpenDB(r), "sqlite")
	writer.SetMaxOpenConns(1)
	reader.SetMaxOpenConns(conns)
	reader.SetMaxIdleConns(conns)
	return writer, reader, nil
}

// OpenFile opens an existing database with one connection. It keeps the journal
// mode, so it leaves no new files next to the database unless another process
// uses it. mode is ro or rw, as in an SQLite URI.
func OpenFile(path, mode string) (*sqlx.DB, error) {
	db, err := sqlx.Open("sqlite",
		fileURI(path, "mode="+mode)+"&_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func fileURI(path, params string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params
}

// code returns the extended result code of an error, or 0.
func code(err error) int {
	if e, is := errors.AsType[*modernc.Error](err); is {
		return e.Code()
	}
	return lib.SQLITE_OK
}

// primary returns the primary result code of an error, or 0.
func primary(err error) int { return code(err) & 0xff }

// IsDuplicate reports whether a statement failed because of a unique index.
func IsDuplicate(err error) bool {
	c := code(err)
	return c == lib.SQLITE_CONSTRAINT_UNIQUE || c == lib.SQLITE_CONSTRAINT_PRIMARYKEY
}

// IsUnavailable reports whether the state of the file or of the disk caused an
// error, not the statement.
func IsUnavailable(err error) bool {
	switch primary(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN, lib.SQLITE_READONLY:
		return true
	}
	return false
}

// IsBadRow reports whether a statement failed because of the values of a row.
func IsBadRow(err error) bool {
	c := primary(err)
	return c == lib.SQLITE_CONSTRAINT || c == lib.SQLITE_MISMATCH
}
