// Package postgres connects to PostgreSQL with lib/pq: it opens sessions, keeps
// their statements prepared, detects poolers and classifies errors.
//
// It imports no other package of cardmint and knows no tables. A session never
// waits forever for a server, and reports a commit that may not be replicated.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

const (
	idleInTxTimeout    = 65 * time.Second // only a stuck process takes that long between two statements
	connectTimeout     = 10 * time.Second
	hostConnectTimeout = 3 * time.Second // with several hosts: the next one may be healthy
	// Some settings of a server, a role or a database apply to new sessions
	// only.
	maxSessionAge = 30 * time.Minute
)

// NewConnector returns a connector for a database URL. No statement may take
// more than timeout. Parameters in the URL override the settings below.
//
// Neither side waits forever for a silent peer. By default, a process that is
// stopped or disconnected would keep its locks for two hours. With these
// settings the server probes a silent connection after 15 s, and ends its
// session. In the other direction, lib/pq can only ask the server to cancel a
// statement. Without deadlines on the connection, a call to a silent server
// would never return, even after its context has ended.
func NewConnector(databaseURL string, timeout time.Duration) (*Connector, error) {
	cfg, err := parse(databaseURL)
	if err != nil {
		return nil, err
	}
	for _, p := range sessionSettings(timeout) {
		if _, given := cfg.Runtime[p.name]; !given && !strings.Contains(cfg.Options, p.name) {
			cfg.Runtime[p.name] = p.value
		}
	}
	cfg.Runtime["client_min_messages"] = "warning" // always: the warning that a commit is not replicated must arrive
	if len(cfg.Multi) > 0 {
		if cfg.TargetSessionAttrs == "" {
			cfg.TargetSessionAttrs = pq.TargetSessionAttrsReadWrite
		}
		cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, hostConnectTimeout)
	}
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, connectTimeout)
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, ErrParameters
	}
	connector.Dialer(dialer{timeout + timeout/4}) // the server should end the statement earlier
	return &Connector{Connector: connector, runtime: cfg.Runtime, StatementLifetime: statementLifetime}, nil
}

// Open returns a pool of up to conns sessions.
func (c *Connector) Open(conns int) *sqlx.DB {
	db := sqlx.NewDb(sql.OpenDB(c), "postgres")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxLifetime(maxSessionAge)
	return db
}

// Ping returns an error if the pool of the connector does not answer, or can't
// be written to. WhyUnready explains it.
func (c *Connector) Ping(ctx context.Context, db *sqlx.DB) error {
	err := checkWritable(ctx, db)
	if errors.Is(err, errReadOnly) {
		c.replaceSessions()
		err = checkWritable(ctx, db) // that session may be older than the server's recovery
	}
	return err
}

func checkWritable(ctx context.Context, db *sqlx.DB) error {
	var readOnly string
	if err := db.GetContext(ctx, &readOnly, "SHOW transaction_read_only"); err != nil { // also on in a standby
		return err
	}
	if readOnly == "on" {
		return errReadOnly
	}
	return nil
}

// parse returns the configuration that lib/pq reads from a URL, the environment
// and a service file.
func parse(databaseURL string) (pq.Config, error) {
	databaseURL = splitHosts(databaseURL)
	if _, err := url.Parse(databaseURL); err != nil {
		return pq.Config{}, errors.New("database url: can't be read; percent-encode the special characters of the password")
	}
	cfg, err := pq.NewConfig(databaseURL)
	if err != nil {
		return pq.Config{}, ErrParameters
	}
	return cfg.Clone(), nil // allocates Runtime, even if the URL has no parameters
}

// UnverifiedHosts returns the hosts, by name or address, that are reached by TCP
// without verifying the server's certificate. It depends on the configuration
// that lib/pq has parsed, not on the text of the URL.
func UnverifiedHosts(databaseURL string) ([]string, error) {
	cfg, err := parse(databaseURL)
	if err != nil || cfg.SSLMode == pq.SSLModeVerifyCA || cfg.SSLMode == pq.SSLModeVerifyFull {
		return nil, err
	}
	var hosts []string
	for _, h := range append([]pq.ConfigMultihost{{Host: cfg.Host, Hostaddr: cfg.Hostaddr}}, cfg.Multi...) {
		switch {
		case h.Hostaddr.IsValid(): // wins over the name
			hosts = append(hosts, h.Hostaddr.String())
		case filepath.IsAbs(h.Host) || strings.HasPrefix(h.Host, "@"): // a socket of this machine
		default:
			hosts = append(hosts, cmp.Or(h.Host, "localhost"))
		}
	}
	return hosts, nil
}

type setting struct{ name, value string }

// sessionSettings returns the default startup parameters of a session.
func sessionSettings(timeout time.Duration) []setting {
	return []setting{
		{"statement_timeout", strconv.FormatInt(timeout.Milliseconds(), 10)},
		{"idle_in_transaction_session_timeout", strconv.FormatInt(idleInTxTimeout.Milliseconds(), 10)},
		{"tcp_keepalives_idle", "15"},    // s
		{"tcp_keepalives_interval", "5"}, // s
		{"tcp_keepalives_count", "3"},
		{"tcp_user_timeout", "30000"}, // ms
	}
}

// splitHosts rewrites a URL with several hosts, postgres://h1:p1,h2:p2/db, into
// the form that lib/pq supports: postgres:///db?host=h1,h2&port=p1,p2.
func splitHosts(databaseURL string) string {
	scheme, rest, _ := strings.Cut(databaseURL, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	at := strings.LastIndex(authority, "@") + 1
	if !strings.Contains(authority[at:], ",") {
		return databaseURL
	}
	var hosts, ports []string
	for _, one := range strings.Split(authority[at:], ",") {
		host, port, err := net.SplitHostPort(one)
		if err != nil {
			host, port = strings.Trim(one, "[]"), "5432"
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	path, query, _ := strings.Cut(rest, "?")
	if query != "" {
		query += "&"
	}
	return scheme + "://" + authority[:at] + cmp.Or(path, "/") + "?" + query +
		"host=" + url.QueryEscape(strings.Join(hosts, ",")) + "&port=" + url.QueryEscape(strings.Join(ports, ","))
}
