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
	longestIdleInTx = longestTx + 5*time.Second // without a statement in a transaction: no process that lives takes that long
	connectTimeout  = 10 * time.Second          // to connect, or to ask for the end of a statement
)

// errParameters is all that is said of them: lib/pq quotes what it can't read, which may be a part of the password.
var errParameters = errors.New("database url: its parameters can't be read")

// openPostgres opens a database whose statements take up to longest each. What the URL says of a parameter stands.
//
// Neither side waits for ever for one that went silent. A process that is stopped or cut off while it holds locks would by default keep them
// for two hours: the server asks after 15 s whether it is still there, and ends its session. And lib/pq can only ask the server to end a
// statement, so that without deadlines of the connection one that fell silent would never return, whatever its context.
func openPostgres(databaseURL string, conns int, longest time.Duration) (*Store, error) {
	if _, err := url.Parse(databaseURL); err != nil {
		return nil, errors.New("database url: can't be read; percent-encode the special characters of the password")
	}
	cfg, err := pq.NewConfig(databaseURL)
	if err != nil {
		return nil, errParameters
	}
	cfg = cfg.Clone() // with a map, even if the URL has no parameters
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
	connector.Dialer(dialer{silence: longest + longest/4}) // after the server should have ended the statement itself
	db := sqlx.NewDb(sql.OpenDB(connector), "postgres")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return &Store{w: db, r: db, dialect: postgres}, nil
}

// dialer makes connections that wait for the other side no longer than silence.
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

// impatient is a connection on which every read and write has a deadline. Between them it may be idle for as long as it likes.
type impatient struct {
	net.Conn
	silence time.Duration
	until   time.Time // what lib/pq sets while it connects
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
