package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/store"
)

type backupCommand struct {
	output `embed:""`

	File string `arg:"" help:"File to write. It must not exist."`
}

func (backupCommand) Help() string {
	return `Writes a consistent copy of the database, which may be busy, and checks it. For SQLite the copy is a database itself; copying cardmint.db by other means loses what is only in cardmint.db-wal. For PostgreSQL it is an archive by pg_dump, which must be installed. The key file is not part of it: keep a copy of that apart. Take a backup before every upgrade: it works with the old and with the new version.

Examples:
  cardmint backup /var/backups/cardmint-$(date +%F)
  cardmint backup before-upgrade \
    --database-url postgres://cardmint@localhost/cardmint` + jsonHelp(backupJSON{})
}

// backupJSON is the content of a backup as JSON.
type backupJSON struct {
	File          string   `json:"file"`
	Cards         int64    `json:"cards"`
	SchemaVersion int64    `json:"schema_version"`
	NewestEntry   instant  `json:"newest_entry"`
	Bytes         int64    `json:"bytes,omitempty"`
	Kept          []string `json:"kept,omitempty"`
}

// Run writes a backup.
func (c backupCommand) Run(ctx context.Context, g *globals) error {
	if err := g.CheckDatabase(); err != nil {
		return err
	}
	contents, size, err := store.Backup(ctx, g.DatabaseURL, c.File, g.progress)
	if err != nil {
		return explainBackup(err)
	}
	made := backupJSON{File: c.File, Cards: contents.Cards, SchemaVersion: contents.Schema.Version,
		NewestEntry: instant{contents.Newest}, Bytes: size}
	return c.write(g, made, func(w io.Writer) {
		fmt.Fprintf(w, "wrote %s: %s, schema version %d, newest entry: %s, %s\n", c.File, count(contents.Cards, "card"),
			contents.Schema.Version, moment(contents.Newest), bytes(size))
	})
}

type restoreCommand struct {
	output `embed:""`

	File    string `arg:"" help:"A file that 'cardmint backup' wrote."`
	Replace bool   `help:"Replace the database that is there. SQLite's files are kept under another name; PostgreSQL's tables are not."`
}

func (restoreCommand) Help() string {
	return `Puts a backup where --database-url points to: a file that does not exist yet, or an empty PostgreSQL database. Stop everything that uses the database before you replace it, and run this as the user that the service runs as. For PostgreSQL, pg_restore must be installed, and one transaction does all of it. The schema stays that of the backup until 'cardmint migrate'.

Examples:
  cardmint restore /var/backups/cardmint-2026-11-20
  cardmint restore before-upgrade --replace \
    --database-url postgres://cardmint@localhost/cardmint` + jsonHelp(backupJSON{})
}

// Run restores a backup.
func (c restoreCommand) Run(ctx context.Context, g *globals) error {
	if err := g.CheckDatabase(); err != nil {
		return err
	}
	r, err := store.Restore(ctx, g.DatabaseURL, c.File, c.Replace, time.Now(), g.progress)
	if err != nil {
		return explainBackup(err)
	}
	if c.JSON {
		return writeJSON(g,
			backupJSON{File: c.File, Cards: r.Cards, SchemaVersion: r.Schema.Version, NewestEntry: instant{r.Newest},
				Kept: r.Kept})
	}
	fmt.Fprintf(g.stdout, "restored %s, schema version %d\n", count(r.Cards, "card"), r.Schema.Version)
	for _, name := range r.Kept {
		fmt.Fprintf(g.stdout, "kept the previous database as %s\n", name)
	}
	fmt.Fprintf(g.stdout,
		"Newest entry: %s. This database lacks everything that happened later: orders, assigned addresses, payments, refunds, issued cards.\n",
		moment(r.Newest))
	if err := r.Schema.Usable(); err != nil {
		fmt.Fprintf(g.stdout, "Before this version of cardmint can use it: %v\n", app.Hint(app.Explain(err)))
	}
	return nil
}

func (g *globals) progress(step string) { fmt.Fprintln(g.stderr, step, "...") }

func explainBackup(err error) error {
	var missing *store.MissingTool
	switch {
	case errors.As(err, &missing) && missing.Name == "pg_dump":
		return app.WithHint(err,
			"install PostgreSQL's client programs (Debian: postgresql-client), or run where they are, with the password in PGPASSWORD or PGPASSFILE: %s", missing.Command)
	case errors.As(err, &missing):
		return app.WithHint(err, "install PostgreSQL's client programs (Debian: postgresql-client)")
	case errors.Is(err, store.ErrFileExists):
		return app.WithHint(err, "choose another name; no file is overwritten")
	case errors.Is(err, store.ErrNotEmpty):
		return app.WithHint(err,
			"name another database with --database-url, or replace this one: stop everything that uses it, and add --replace")
	case errors.Is(err, store.ErrInUse):
		return app.WithHint(err,
			"stop every cardmint that uses it, and other programs that have it open, such as connection poolers")
	case errors.Is(err, store.ErrOtherTables):
		return app.WithHint(err, "create an empty database, restore into that, and point --database-url to it")
	case errors.Is(err, store.ErrNoBackup):
		return app.WithHint(err,
			"restore takes what 'cardmint backup' wrote, of the same kind of database as --database-url names")
	}
	return app.ExplainDatabase(err)
}

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func bytes(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
