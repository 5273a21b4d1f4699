package cli

import (
	"context"
	"fmt"
	"io"
)

type migrateCommand struct {
	output `embed:""`
}

type schemaJSON struct {
	SchemaVersion int64 `json:"schema_version"`
}

func (migrateCommand) Help() string {
	return "'dev' and 'serve' do this when they start; no other command changes the schema. Several processes may do it at once. On PostgreSQL, a migration that can't have a table within a second lets others go first and tries again, for up to ten minutes. Connect to PostgreSQL itself, not to a pooler that shares sessions between transactions.\n\nExample:\n  cardmint migrate --database-url postgres://cardmint@localhost/cardmint" + jsonHelp(schemaJSON{})
}

// Run migrates.
func (c migrateCommand) Run(ctx context.Context, g *globals) error {
	fmt.Fprintln(g.stderr, "bringing the schema up to date ...")
	schema, err := g.Migrate(ctx)
	if err != nil {
		return err
	}
	return c.write(g, schemaJSON{schema.Version}, func(w io.Writer) {
		fmt.Fprintf(w, "schema version %d\n", schema.Version)
	})
}
