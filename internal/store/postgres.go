package store

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// longestIdleInTx is without a statement in a transaction: no process that lives takes that long.
const longestIdleInTx = longestTx + 5*time.Second

// openPostgres opens a database whose statements take up to longest each. What the URL says of a parameter stands.
//
// A process that is stopped or cut off while it holds locks would by default keep them for two hours: the server asks after 15 s whether it
// is still there, and ends its session.
func openPostgres(databaseURL string, conns int, longest time.Duration) (*Store, error) {
	if _, err := url.Parse(databaseURL); err != nil {
		return nil, errors.New("database url: can't be read; percent-encode the special characters of the password")
	}
	cfg, err := pq.NewConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
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
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	db := sqlx.NewDb(sql.OpenDB(connector), "postgres")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return &Store{w: db, r: db, dialect: postgres}, nil
}
