package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"
)

// ErrPoolMode means that a pooler such as PgBouncer stands before PostgreSQL,
// and does not give each connection a session of its own. Statements that are
// prepared in one session would be executed in another, which may have prepared
// something else by that name.
var ErrPoolMode = errors.New("a connection pooler shares sessions among clients; " +
	"cardmint needs pool_mode = session, with any version of PgBouncer (not transaction or statement), or no pooler")

// ErrPoolParameters means that PgBouncer refuses the parameters that sessions
// start with.
var ErrPoolParameters = errors.New("PgBouncer refuses to pass on settings of the session; " +
	"add these to its ignore_startup_parameters: " + startupParameters())

func startupParameters() string {
	names := []string{"client_min_messages"}
	for _, p := range sessionSettings(longestTx) {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// poolError returns the error that a pooler in a wrong mode causes, or nil.
func poolError(err error) error {
	var e *pq.Error
	switch {
	case !errors.As(err, &e):
		return nil
	case e.Code == "42P05", e.Code == "26000": // the prepared statement exists already, or does not exist
		return ErrPoolMode
	case strings.Contains(e.Message, "unsupported startup parameter"):
		return ErrPoolParameters
	}
	return nil
}

// longestLook limits the search for a pooler.
const longestLook = 5 * time.Second

// meetPooler finds out whether a pooler stands before the server: it swallows
// startup parameters, so that sessions must set them themselves. The error is
// ErrPoolMode if the pooler shares sessions among its clients.
func (s *Store) meetPooler(ctx context.Context) error {
	if s.pg == nil {
		return nil
	}
	var names, want []string
	for _, name := range []string{"client_min_messages", "idle_in_transaction_session_timeout", "statement_timeout"} {
		value := s.pg.runtime[name]
		// the server shows "60s" in another unit
		if value == "warning" || value != "" && strings.Trim(value, "0123456789") == "" {
			names, want = append(names, pq.QuoteLiteral(name)), append(want, value)
		}
	}
	var got string
	err := s.get(ctx, s.r, &got, "look for a pooler",
		"SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN ("+strings.Join(names, ", ")+")")
	if err != nil || got == strings.Join(want, " ") {
		return err
	}
	if err := s.ownSessions(ctx); err != nil {
		return err
	}
	var statements strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.pg.runtime)) {
		fmt.Fprintf(&statements, "SET SESSION %s = %s;", pq.QuoteIdentifier(name), pq.QuoteLiteral(s.pg.runtime[name]))
	}
	settings := statements.String()
	s.pg.settings.Store(&settings)
	s.pg.distrust()
	return nil
}

// ownSessions returns ErrPoolMode if a connection is given the session of
// another, which is idle. A pooler that shares sessions gives away the one that
// was used last, unless another client is faster: hence several attempts. If
// there is no second connection to be had, the first one has its session for
// itself.
func (s *Store) ownSessions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	db := sql.OpenDB(s.pg)
	defer func() { _ = db.Close() }()
	one, err := db.Conn(ctx)
	if err != nil {
		return s.fail("look for a pooler", err)
	}
	defer func() { _ = one.Close() }()
	other, err := db.Conn(ctx)
	if err == nil {
		defer func() { _ = other.Close() }()
	}
	for range 5 {
		var session [2]int
		for i, c := range []*sql.Conn{one, other} {
			if err == nil {
				err = c.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&session[i])
			}
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return s.fail("look for a pooler", err)
		case session[0] == session[1]:
			return ErrPoolMode
		}
	}
	return nil
}
