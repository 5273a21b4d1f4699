package sqlite

import (
	"context"
	"database/sql/driver"
	"strings"

	modernc "modernc.org/sqlite"
)

const (
	maxCached = 128 // statements of a connection
	// Longer statements insert many rows, and their number rarely repeats.
	maxCachedBytes = 4 << 10
)

// cachingConnector opens connections that compile a statement once, instead of
// each time it runs: compiling takes longer than running most of them.
type cachingConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c cachingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	connected, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &cachingConn{conn: connected.(conn), idle: map[string]stmt{}}, nil
}

// conn is what the driver's connections implement.
type conn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	modernc.DBStatus
}

// stmt is what the driver's statements implement.
type stmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// cachingConn is a connection that keeps statements. Package database/sql calls
// it from one goroutine at a time.
type cachingConn struct {
	conn
	idle map[string]stmt // that are not in use, by text
}

// isCached reports whether a statement is kept. Pragmas are not: some take
// effect when they are compiled.
func isCached(query string) bool {
	if len(query) > maxCachedBytes {
		return false
	}
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	switch verb {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
		return true
	}
	return false
}

// acquire returns a statement that is not in use. The caller must release it.
func (c *cachingConn) acquire(ctx context.Context, query string) (stmt, error) {
	if st, found := c.idle[query]; found {
		delete(c.idle, query)
		return st, nil
	}
	st, err := c.PrepareContext(ctx, hideLimits(query))
	if err != nil {
		return nil, err
	}
	return st.(stmt), nil
}

// hideLimits turns the limits of a statement into expressions. SQLite plans for
// the value of a limit that is only a parameter, and therefore compiles such a
// statement again whenever it is bound.
func hideLimits(query string) string { return strings.ReplaceAll(query, "LIMIT ?", "LIMIT +?") }

func (c *cachingConn) release(query string, st stmt) {
	if _, found := c.idle[query]; found { // the text was run by two statements at once
		_ = st.Close()
		return
	}
	if len(c.idle) >= maxCached {
		for other, idle := range c.idle { // a frequent statement soon returns
			delete(c.idle, other)
			_ = idle.Close()
			break
		}
	}
	c.idle[query] = st
}

// ExecContext implements driver.ExecerContext.
func (c *cachingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if !isCached(query) {
		return c.conn.ExecContext(ctx, hideLimits(query), args)
	}
	st, err := c.acquire(ctx, query)
	if err != nil {
		return nil, err
	}
	defer c.release(query, st)
	return st.ExecContext(ctx, args)
}

// QueryContext implements driver.QueryerContext.
func (c *cachingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !isCached(query) {
		return c.conn.QueryContext(ctx, hideLimits(query), args)
	}
	st, err := c.acquire(ctx, query)
	if err != nil {
		return nil, err
	}
	found, err := st.QueryContext(ctx, args)
	if err != nil {
		c.release(query, st)
		return nil, err
	}
	return &rows{Rows: found, release: func() { c.release(query, st) }}, nil
}

// Close implements driver.Conn. SQLite keeps a connection open until its
// statements are closed.
func (c *cachingConn) Close() error {
	for _, st := range c.idle {
		_ = st.Close()
	}
	clear(c.idle)
	return c.conn.Close()
}

// rows are the rows of a cached statement, which is in use until they are
// closed.
type rows struct {
	driver.Rows
	release func()
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	defer r.release()
	return r.Rows.Close()
}
