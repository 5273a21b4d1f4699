package acceptance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/cardmint/cardmint/internal/rig"
)

// An operator may run commands of a newer version while the service still runs
// the old one.
func TestCLI_OldSchema_IsRefused(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	const id = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	commands := [][]string{
		{"account", "create", "shop"}, {"token", "create", "shop"}, {"token", "list"}, {"token", "revoke", id},
		{"card", "list"},
		{"card", "show", id}, {"card", "resolve", id, "retry", "--note", "x", "--yes"}, {"transfers", "--unattributed"},
		{"reconcile"}, {"wallet", "rescan", "--wait", "0"},
	}
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		p := newProgram(t, url)
		p.must(t, "keys", "create")
		db := rig.OpenSQL(t, url)
		refused := func(want string) {
			t.Helper()
			for _, args := range commands {
				stdout, stderr, code := p.run(args...)
				if code != 1 || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "cardmint migrate") {
					t.Errorf("%v: exit code %d, printed %q and %q", args, code, stdout, stderr)
				}
			}
		}
		refused("no schema")
		if path, lite := strings.CutPrefix(url, "sqlite:"); lite {
			if files, _ := filepath.Glob(path + "*"); len(files) > 0 {
				t.Errorf("a refused command created %v", files)
			}
		}
		const older = 5
		dialect, name := goose.DialectSQLite3, "sqlite"
		if strings.HasPrefix(url, "postgres") {
			dialect, name = goose.DialectPostgres, "postgres"
		}
		migrations, err := goose.NewProvider(dialect, db, os.DirFS("../store/migrations/"+name))
		if err == nil {
			_, err = migrations.UpTo(t.Context(), older)
		}
		if err != nil {
			t.Fatal(err)
		}
		refused("older schema")
		var version int
		if err := db.QueryRow("SELECT MAX(version_id) FROM goose_db_version").Scan(&version); err != nil || version != older {
			t.Errorf("version %d, error %v", version, err)
		}
		p.serve(t, "serve", "--simulated", "--rate", "monero=150").stop(t)
		p.must(t, "reconcile")
	})
}
