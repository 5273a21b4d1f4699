package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// ErrPoolMode means that a pooler such as PgBouncer in front of PostgreSQL does
// not give each connection its own session. A statement that is prepared in one
// session would be executed in another, which may have prepared a different
// statement by that name.
var ErrPoolMode = errors.New("a connection pooler shares sessions among clients; " +
	"cardmint needs pool_mode = session, with any version of PgBouncer (not transaction or statement), or no pooler")

// ErrPoolParameters means that PgBouncer rejects the parameters that sessions
// start with.
var ErrPoolParameters = errors.New("PgBouncer refuses to pass on settings of the session; " +
	"add these to its ignore_startup_parameters: " + startupParameters())

func startupParameters() string {
	names := []string{"client_min_messages"}
	for _, p := range sessionSettings(0) {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// PoolError returns ErrPoolMode or ErrPoolParameters if it is the cause of an
// error, otherwise nil.
func PoolError(err error) error {
	e, is := errors.AsType[*pq.Error](err)
	switch {
	case !is:
		return nil
	case e.Code == pqerror.DuplicatePstatement, e.Code == pqerror.InvalidSQLStatementName: // it does not exist
		return ErrPoolMode
	case strings.Contains(e.Message, "unsupported startup parameter"):
		return ErrPoolParameters
	}
	return nil
}

// poolerTimeout limits the search for a pooler.
const poolerTimeout = 5 * time.Second

// CheckPooler detects a pooler in front of the server, on the pool of the
// connector. A pooler drops startup parameters: from then on, sessions set them
// by statements. The error is ErrPoolMode if the pooler shares sessions among
// its clients.
func (c *Connector) CheckPooler(ctx context.Context, db *sqlx.DB) error {
	var names, want []string
	for _, name := range []string{"client_min_messages", "idle_in_transaction_session_timeout", "statement_timeout"} {
		value := c.runtime[name]
		// the server reports "60s" in another unit
		if value == "warning" || value != "" && strings.Trim(value, "0123456789") == "" {
			names, want = append(names, pq.QuoteLiteral(name)), append(want, value)
		}
	}
	var got string
	err := db.GetContext(ctx, &got, "SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN ("+
		strings.Join(names, ", ")+")")
	if err != nil || got == strings.Join(want, " ") {
		return err
	}
	if err := c.checkSessions(ctx); err != nil {
		return err
	}
	var statements strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.runtime)) {
		fmt.Fprintf(&statements, "SET SESSION %s = %s;", pq.QuoteIdentifier(name), pq.QuoteLiteral(c.runtime[name]))
	}
	settings := statements.String()
	c.settings.Store(&settings)
	c.replaceSessions()
	return nil
}

// checkSessions returns ErrPoolMode if a connection gets the idle session of
// another one. A pooler that shares sessions reuses the last one, unless another
// client is faster: hence several attempts. If no second connection is
// available, the first one does not share its session.
func (c *Connector) checkSessions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, poolerTimeout)
	defer cancel()
	db := sql.OpenDB(c)
	defer func() { _ = db.Close() }()
	first, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = first.Close() }()
	second, err := db.Conn(ctx)
	if err == nil {
		defer func() { _ = second.Close() }()
	}
	for range 5 {
		var session [2]int
		for i, conn := range []*sql.Conn{first, second} {
			if err == nil {
				err = conn.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&session[i])
			}
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case session[0] == session[1]:
			return ErrPoolMode
		}
	}
	return nil
}
