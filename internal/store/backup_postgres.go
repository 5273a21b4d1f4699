package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/store/postgres"
)

// dump writes an archive of a database to a file with pg_dump, and reads it
// again with pg_restore.
func dump(ctx context.Context, databaseURL, file string, progress func(string)) error {
	to, err := libpq(databaseURL)
	if err != nil {
		return err
	}
	if _, err := to.run(ctx, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", "--no-password",
		"--file="+file, "--dbname="+to.uri); err != nil {
		return err
	}
	progress("checking the copy")
	if _, err := to.run(ctx, "pg_restore", "--file="+os.DevNull, file); err != nil {
		return fmt.Errorf("%w: %w", ErrNoBackup, err)
	}
	return nil
}

// undump fills the database from a file with pg_restore, in one transaction.
func (s *Store) undump(ctx context.Context, databaseURL, file string, replace bool, progress func(string)) error {
	to, err := libpq(databaseURL)
	if err != nil {
		return err
	}
	progress("reading the backup")
	listed, err := to.run(ctx, "pg_restore", "--list", file)
	if err != nil {
		if missing := (*MissingTool)(nil); errors.As(err, &missing) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrNoBackup, err)
	}
	backup := archived(listed)
	if !slices.ContainsFunc(backup, func(table string) bool { return strings.HasSuffix(table, ".goose_db_version") }) {
		return fmt.Errorf("%w: %w", ErrNoBackup, ErrNoSchema)
	}
	args := []string{"--no-owner", "--no-privileges", "--no-password", "--exit-on-error", "--single-transaction",
		"--dbname=" + to.uri}
	there, err := s.tables(ctx)
	switch {
	case err != nil:
		return err
	case len(there) > 0 && !replace:
		return fmt.Errorf("%w: it has %d tables", ErrNotEmpty, len(there))
	case len(there) > 0:
		if err := s.checkReplaceable(ctx, there, backup); err != nil {
			return err
		}
		args = append(args, "--clean", "--if-exists")
	}
	progress("restoring the database")
	_, err = to.run(ctx, "pg_restore", append(args, file)...)
	return err
}

// countOtherSessions returns how many other sessions the same user has in the
// database.
func (s *Store) countOtherSessions(ctx context.Context) (n int, err error) {
	err = s.get(ctx, s.w, &n, "count sessions", `SELECT COUNT(*) FROM pg_stat_activity
		WHERE datname = current_database() AND usename = current_user
			AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
	return n, err
}

// checkReplaceable returns ErrInUse or ErrOtherTables if a backup can't replace
// the database, which has the tables in there. The server ends the sessions of
// a process shortly after the process itself, so it waits up to two seconds for
// them.
func (s *Store) checkReplaceable(ctx context.Context, there, backup []string) error {
	others, err := s.countOtherSessions(ctx)
	for wait := 0; err == nil && others > 0 && wait < 20; wait++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		others, err = s.countOtherSessions(ctx)
	}
	if err != nil {
		return err
	}
	if others > 0 {
		return fmt.Errorf("%w: by %d sessions of the same user", ErrInUse, others)
	}
	left := slices.DeleteFunc(there, func(table string) bool { return slices.Contains(backup, table) })
	if len(left) > 0 {
		return fmt.Errorf("%w: %s", ErrOtherTables, strings.Join(left, ", "))
	}
	return nil
}

// tables returns the names of the tables and views in the database, each with
// its schema.
func (s *Store) tables(ctx context.Context) ([]string, error) {
	var all []string
	err := s.list(ctx, s.w, &all, "list tables", `SELECT n.nspname || '.' || c.relname
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		AND NOT EXISTS (SELECT 1 FROM pg_depend d
			WHERE d.classid = CAST('pg_class' AS regclass) AND d.objid = c.oid AND d.deptype = 'e') ORDER BY 1`)
	return all, err
}

// archived returns the names of the tables in a list by pg_restore, each with
// its schema. A line is "215; 1259 16389 TABLE public cards owner".
func archived(list string) []string {
	var all []string
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) >= 6 && (f[3] == "TABLE" || f[3] == "VIEW") && f[4] != "DATA" &&
			f[4] != "ATTACH" {
			all = append(all, f[4]+"."+f[5])
		}
	}
	return all
}

// client contains the connection parameters for PostgreSQL's programs.
type client struct {
	uri string   // without the password, because all users can read command lines
	env []string // contains the password
}

// libpqParameters are the URL parameters that PostgreSQL's programs also know.
// lib/pq passes other parameters to the server.
var libpqParameters = []string{"application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname",
	"host", "hostaddr", "krbsrvname", "load_balance_hosts",
	"options", "passfile", "port", "service", "sslcert", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "sslsni",
	"target_session_attrs", "user"}

// libpq converts the URL of a PostgreSQL database.
func libpq(databaseURL string) (client, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return client{}, postgres.ErrParameters
	}
	given := u.Query()
	password, has := u.User.Password()
	if p := given.Get("password"); p != "" {
		password, has = p, true
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	known := url.Values{}
	for _, name := range libpqParameters {
		if given.Has(name) {
			known.Set(name, given.Get(name))
		}
	}
	u.RawQuery = strings.ReplaceAll(known.Encode(), "+", "%20") // libpq does not decode + as a space
	c := client{uri: u.String(), env: os.Environ()}
	if has {
		c.env = append(c.env, "PGPASSWORD="+password)
	}
	return c, nil
}

// run runs one of PostgreSQL's programs and returns what it printed. The error
// is a *MissingTool if it is not in PATH.
func (c client) run(ctx context.Context, name string, args ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &MissingTool{Name: name, Command: name + " '" + strings.Join(args, "' '") + "'"}
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.Join(strings.Fields(errs.String()), " "))
	}
	return out.String(), nil
}
