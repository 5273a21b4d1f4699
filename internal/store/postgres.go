package store

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

const (
	longestIdleInTx = longestTx + 5*time.Second // between two statements of a transaction; only a dead process takes that long
	connectTimeout  = 10 * time.Second          // to connect, or to send a cancel request
)

// errParameters replaces errors of lib/pq, which quote what they could not parse: that may be part of the password.
var errParameters = errors.New("database url: its parameters can't be read")

// openPostgres opens a PostgreSQL database. No statement may take more than longest. Parameters in the URL override the settings below.
//
// Neither side waits for ever for a silent peer. By default, a process that is stopped or cut off would keep its locks for two hours.
// With these settings the server probes a silent connection after 15 s, and ends its session. In the other direction, lib/pq can only
// ask the server to cancel a statement. Without deadlines on the connection, a call to a silent server would never return, whatever its
// context.
func openPostgres(databaseURL string, conns int, longest time.Duration) (*Store, error) {
	if _, err := url.Parse(databaseURL); err != nil {
		return nil, errors.New("database url: can't be read; percent-encode the special characters of the password")
	}
	cfg, err := pq.NewConfig(databaseURL)
	if err != nil {
		return nil, errParameters
	}
	cfg = cfg.Clone() // allocates Runtime, even if the URL has no parameters
	for name, value := range map[string]int64{
		"statement_timeout":                   longest.Milliseconds(),
		"idle_in_transaction_session_timeout": longestIdleInTx.Milliseconds(),
		"tcp_keepalives_idle":                 15, // s
		"tcp_keepalives_interval":             5,  // s
		"tcp_keepalives_count":                3,
		"tcp_user_timeout":                    30_000, // ms
	} {
		if _, given := cfg.Runtime[name]; !given && !strings.Contains(cfg.Options, name) {
			cfg.Runtime[name] = strconv.FormatInt(value, 10)
		}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, errParameters
	}
	connector.Dialer(dialer{silence: longest + longest/4}) // by then the server should have ended the statement itself
	db := sqlx.NewDb(sql.OpenDB(connector), "postgres")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return &Store{w: db, r: db, dialect: postgres}, nil
}

// dialer makes connections that do not wait for the other side longer than silence.
type dialer struct{ silence time.Duration }

// DialContext implements pq.DialerContext.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}).
		DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &impatient{Conn: c, silence: d.silence}, nil
}

// Dial implements pq.Dialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialTimeout implements pq.Dialer.
func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// impatient is a connection on which every read and write has a deadline. It may be idle in between for any time.
type impatient struct {
	net.Conn
	silence time.Duration
	until   time.Time // the deadline that lib/pq sets while it connects
}

func (c *impatient) SetDeadline(t time.Time) error {
	c.until = t
	return c.Conn.SetDeadline(t)
}

func (c *impatient) deadline() time.Time {
	t := time.Now().Add(c.silence)
	if !c.until.IsZero() && c.until.Before(t) {
		return c.until
	}
	return t
}

func (c *impatient) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(c.deadline()); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *impatient) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(c.deadline()); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
