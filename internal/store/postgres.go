package store

import (
	"cmp"
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
	// between two statements of a transaction; only a dead process takes that
	// long
	longestIdleInTx = longestTx + 5*time.Second
	connectTimeout  = 10 * time.Second // to connect
	hostTimeout     = 3 * time.Second  // to connect to one of several hosts: the next may be well
	// some settings of a server, a role or a database are in force in new
	// sessions only
	longestSession = 30 * time.Minute
)

// errParameters replaces errors of lib/pq, which quote what they could not
// parse: that may be part of the password.
var errParameters = errors.New("database url: its parameters can't be read")

// IsServer reports whether a database is on a server, which may not be there
// yet.
func IsServer(databaseURL string) bool {
	scheme, _, _ := strings.Cut(databaseURL, ":")
	return scheme == "postgres" || scheme == "postgresql"
}

// openPostgres opens a PostgreSQL database. No statement may take more than
// longest. Parameters in the URL override the settings below.
//
// Neither side waits for ever for a silent peer. By default, a process that is
// stopped or cut off would keep its locks for two hours. With these settings
// the server probes a silent connection after 15 s, and ends its session. In
// the other direction, lib/pq can only ask the server to cancel a statement.
// Without deadlines on the connection, a call to a silent server would never
// return, whatever its context.
func openPostgres(databaseURL string, conns int, longest time.Duration) (*Store, error) {
	cfg, err := postgresConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	for _, p := range sessionSettings(longest) {
		if _, given := cfg.Runtime[p.name]; !given && !strings.Contains(cfg.Options, p.name) {
			cfg.Runtime[p.name] = p.value
		}
	}
	cfg.Runtime["client_min_messages"] = "warning" // always: the warning that a commit is not replicated must arrive
	if len(cfg.Multi) > 0 {
		if cfg.TargetSessionAttrs == "" {
			cfg.TargetSessionAttrs = pq.TargetSessionAttrsReadWrite
		}
		cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, hostTimeout)
	}
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, connectTimeout)
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, errParameters
	}
	connector.Dialer(dialer{silence: longest + longest/4}) // by then the server should have ended the statement itself
	all := &sessions{Connector: connector, runtime: cfg.Runtime, statementLifetime: statementLifetime}
	db := sqlx.NewDb(sql.OpenDB(all), "postgres")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxLifetime(longestSession)
	writing := max(1, conns-max(1, conns/8))
	return &Store{w: db, r: db, dialect: postgres, pg: all, writers: make(chan struct{}, writing)}, nil
}

// postgresConfig returns what lib/pq reads from a URL, the environment and a
// service file.
func postgresConfig(databaseURL string) (pq.Config, error) {
	databaseURL = splitHosts(databaseURL)
	if _, err := url.Parse(databaseURL); err != nil {
		return pq.Config{}, errors.New("database url: can't be read; percent-encode the special characters of the password")
	}
	cfg, err := pq.NewConfig(databaseURL)
	if err != nil {
		return pq.Config{}, errParameters
	}
	return cfg.Clone(), nil // allocates Runtime, even if the URL has no parameters
}

// UnverifiedHosts returns the hosts that a database may be reached at by TCP
// without a check of the server's certificate: names or addresses. It decides
// from what lib/pq parsed, not from the text of the URL. A SQLite database has
// none.
func UnverifiedHosts(databaseURL string) ([]string, error) {
	if !IsServer(databaseURL) {
		return nil, nil
	}
	cfg, err := postgresConfig(databaseURL)
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

// sessionSettings returns what sessions are started with unless the URL says
// otherwise.
func sessionSettings(longest time.Duration) []setting {
	return []setting{
		{"statement_timeout", strconv.FormatInt(longest.Milliseconds(), 10)},
		{"idle_in_transaction_session_timeout", strconv.FormatInt(longestIdleInTx.Milliseconds(), 10)},
		{"tcp_keepalives_idle", "15"},    // s
		{"tcp_keepalives_interval", "5"}, // s
		{"tcp_keepalives_count", "3"},
		{"tcp_user_timeout", "30000"}, // ms
	}
}

// splitHosts rewrites a URL with several hosts, postgres://h1:p1,h2:p2/db, as
// lib/pq takes it: postgres:///db?host=h1,h2&port=p1,p2.
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
