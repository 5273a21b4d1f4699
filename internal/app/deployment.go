package app

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

// Deployment is what every process and command of one installation shares. Its
// tags define the flags of all commands.
type Deployment struct {
	DatabaseURL     string `name:"database-url" env:"CARDMINT_DATABASE_URL" default:"sqlite:cardmint.db" placeholder:"URL" help:"Database: sqlite:PATH or postgres://USER@HOST/NAME (${default})."`
	Keys            string `env:"CARDMINT_KEYS" default:"cardmint.keys" placeholder:"FILE" help:"Key file that encrypts credentials, created by 'keys create'; readable only by its owner (${default})."`
	Mode            string `env:"CARDMINT_MODE" default:"test" enum:"test,live" placeholder:"MODE" help:"Test, or live, which sells real cards and refuses simulated parts and unprotected connections. It is part of every token, so that a test token can't be mistaken for a real one (${default})."`
	AllowUnverified bool   `name:"allow-unverified-database" env:"CARDMINT_ALLOW_UNVERIFIED_DATABASE" help:"In live mode, connect to a PostgreSQL on another machine without checking its certificate. Anyone between the two can then read and change everything that is stored: tokens, payment addresses, refunds. Only for a private network."`

	Log   *slog.Logger `kong:"-"`
	Audit *slog.Logger `kong:"-"` // operator actions and the start of the service, at every log level

	newer sync.Once // reports a newer schema once
}

// NameSessions adds the name of this process to DatabaseURL, so that PostgreSQL
// lists its sessions under it. An application_name in the URL or in PGAPPNAME
// takes precedence.
func (d *Deployment) NameSessions(role string) {
	if !store.IsServer(d.DatabaseURL) {
		return
	}
	separator := "?"
	if strings.Contains(d.DatabaseURL, "?") {
		separator = "&"
	}
	d.DatabaseURL += separator + "fallback_application_name=" + url.QueryEscape("cardmint "+role+" "+Version())
}

// OpenStore opens the database with up to conns connections. It does not
// migrate.
func (d *Deployment) OpenStore(ctx context.Context, conns int) (*store.Store, error) {
	if err := d.CheckDatabase(); err != nil {
		return nil, err
	}
	opening, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	s, err := store.Open(opening, d.DatabaseURL, conns, chain.Currencies())
	if err != nil {
		return nil, ExplainDatabase(err)
	}
	if schema := s.Schema(); schema.Newer() {
		d.newer.Do(func() {
			d.Log.Info("a newer version of cardmint has migrated the database; this one can still use it", "schema",
				schema.Version, "known", schema.Program)
		})
	}
	s.LogTo(d.Log)
	return s, nil
}

// Migrate brings the schema of the database up to date.
func (d *Deployment) Migrate(ctx context.Context) (store.Schema, error) {
	if err := d.CheckDatabase(); err != nil {
		return store.Schema{}, err
	}
	schema, err := store.Migration{Log: d.Log}.Run(ctx, d.DatabaseURL)
	return schema, ExplainDatabase(err)
}

// CheckDatabase returns an error if a process in live mode would connect to a
// PostgreSQL on another machine without verifying its certificate.
func (d *Deployment) CheckDatabase() error {
	if d.Mode != card.LiveMode || d.AllowUnverified {
		return nil
	}
	hosts, err := store.UnverifiedHosts(d.DatabaseURL)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(hosts, func(host string) bool { return !loopback(host) }) {
		return WithHint(errors.New("live mode: --database-url: the certificate of PostgreSQL is not verified"),
			"let it end in sslmode=verify-full; docs/flags.md describes the risk of --allow-unverified-database")
	}
	return nil
}

// OpenVault reads the key file.
func (d *Deployment) OpenVault(ctx context.Context) (*vault.Vault, error) {
	v, err := vault.Open(d.Keys)
	if err == nil || errors.Is(err, vault.ErrPermissions) {
		return v, Explain(err)
	}
	const restore = "restore the copy of the key file to %s: nothing of this database can be read with a new one; see docs/operate/secrets.md#the-key-file-is-lost"
	switch used, dbErr := d.databaseUsed(ctx); {
	case used:
		return nil, WithHint(err, restore, d.Keys)
	case dbErr != nil && !errors.Is(dbErr, store.ErrNoSchema):
		return nil, WithHint(err,
			"if the database was used before, "+restore+"; only for a new database: cardmint keys create --keys %s", d.Keys,
			d.Keys)
	}
	return nil, WithHint(err, "make a key file once with: cardmint keys create --keys %s", d.Keys)
}

// databaseUsed reports whether a key file was used with the database.
func (d *Deployment) databaseUsed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	db, err := store.Open(ctx, d.DatabaseURL, 1, chain.Currencies())
	if err != nil {
		return false, err
	}
	defer func() { _ = db.Close() }()
	accounts, err := db.Accounts(ctx)
	if err != nil || len(accounts) > 0 {
		return len(accounts) > 0, err
	}
	known, err := db.KnownKeys(ctx)
	return len(known) > 0, err
}
