package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"strings"

	"github.com/jmoiron/sqlx"
	modernc "modernc.org/sqlite"
)

func openSQLite(path string, conns int) (*Store, error) {
	w, err := sqlitePool(path, toWrite)
	if err != nil {
		return nil, err
	}
	w.SetMaxOpenConns(1)
	r, err := sqlitePool(path, toRead)
	if err != nil {
		return nil, err
	}
	r.SetMaxOpenConns(conns)
	r.SetMaxIdleConns(conns)
	return &Store{w: w, r: r, dialect: sqlite}, nil
}

const (
	toWrite = "_txlock=immediate"
	toRead  = "_pragma=query_only(1)"
)

func sqliteDSN(path, params string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params +
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"
}

func sqlitePool(path, params string) (*sqlx.DB, error) {
	connector, err := modernc.NewConnector(sqliteDSN(path, params))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return sqlx.NewDb(sql.OpenDB(compiling{connector}), "sqlite"), nil
}

// compiling makes connections that compile a statement once, not each time it
// is run: compiling takes longer than running most of them. It implements
// driver.Connector.
type compiling struct{ driver.Connector }

// Connect implements driver.Connector.
func (c compiling) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &compiled{liteConn: made.(liteConn), idle: map[string]preparedStmt{}}, nil
}

// liteConn is what the connections of SQLite's driver implement.
type liteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

const (
	mostCompiled = 128 // statements that a connection keeps
	// bytes of such a statement; longer ones are those of batches, of which no
	// two have as many rows
	longestCompiled = 4 << 10
)

// compiled is a connection that keeps statements. Package database/sql calls it
// from one goroutine at a time.
type compiled struct {
	liteConn
	idle map[string]preparedStmt // those that nobody is using, by text
}

// keeps reports whether a statement is kept. Pragmas are not: some take effect
// when they are compiled.
func keeps(query string) bool {
	if len(query) > longestCompiled {
		return false
	}
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	switch verb {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
		return true
	}
	return false
}

// take returns a statement that nobody else is using until it is given back.
func (c *compiled) take(ctx context.Context, query string) (preparedStmt, error) {
	if st, found := c.idle[query]; found {
		delete(c.idle, query)
		return st, nil
	}
	st, err := c.PrepareContext(ctx, forAnyLimit(query))
	if err != nil {
		return nil, err
	}
	return st.(preparedStmt), nil
}

// forAnyLimit returns a statement with its limits as expressions. SQLite plans
// for the value of a limit that is a parameter alone, and therefore compiles
// such a statement again whenever it is bound.
func forAnyLimit(query string) string { return strings.ReplaceAll(query, "LIMIT ?", "LIMIT +?") }

func (c *compiled) give(query string, st preparedStmt) {
	if _, found := c.idle[query]; found { // a statement was run while another of its text was
		_ = st.Close()
		return
	}
	if other, full := evict(c.idle, mostCompiled); full {
		_ = other.Close()
	}
	c.idle[query] = st
}

// ExecContext implements driver.ExecerContext.
func (c *compiled) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if !keeps(query) {
		return c.liteConn.ExecContext(ctx, forAnyLimit(query), args)
	}
	st, err := c.take(ctx, query)
	if err != nil {
		return nil, err
	}
	defer c.give(query, st)
	return st.ExecContext(ctx, args)
}

// QueryContext implements driver.QueryerContext.
func (c *compiled) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !keeps(query) {
		return c.liteConn.QueryContext(ctx, forAnyLimit(query), args)
	}
	st, err := c.take(ctx, query)
	if err != nil {
		return nil, err
	}
	found, err := st.QueryContext(ctx, args)
	if err != nil {
		c.give(query, st)
		return nil, err
	}
	return &compiledRows{Rows: found, give: func() { c.give(query, st) }}, nil
}

// Close implements driver.Conn. SQLite keeps a connection open until its
// statements are closed.
func (c *compiled) Close() error {
	for _, st := range c.idle {
		_ = st.Close()
	}
	clear(c.idle)
	return c.liteConn.Close()
}

// compiledRows is what a kept statement found. The statement is in use until it
// is closed.
type compiledRows struct {
	driver.Rows
	give func()
}

// Close implements driver.Rows.
func (r *compiledRows) Close() error {
	defer r.give()
	return r.Rows.Close()
}
