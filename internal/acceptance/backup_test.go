package acceptance_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

func TestBackup_RunningService_CanBeRestored(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	simulated := []string{"serve", "--simulated", "--rate", "monero=150"}
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		p := newProgram(t, url)
		token := p.account(t)
		s := p.serve(t, simulated...)
		c := newClient(t, s.url, token)
		sold := sellCard(t, c)
		file := filepath.Join(t.TempDir(), "backup")
		wantOutput(t, p.must(t, "backup", file), "wrote "+file+": 1 card, schema version ", "newest entry: 20", "KiB")
		later, err := c.CreateCard(t.Context(),
			client.CreateCardRequest{USDAmount: decimal.NewFromInt(50), Currency: "monero"})
		if err != nil {
			t.Fatal(err)
		}

		fails := func(want, hint string, args ...string) {
			t.Helper()
			if stdout, stderr, code := p.run(args...); code != 1 || stdout != "" || !strings.Contains(stderr, want) ||
				!strings.Contains(stderr, "hint: "+hint) {
				t.Errorf("%v: exit code %d, printed %q and %q", args, code, stdout, stderr)
			}
		}
		fails("the file exists already", "choose another name", "backup", file)
		fails("there is a database already", "name another database", "restore", file)
		fails("the database is in use", "stop every cardmint", "restore", file, "--replace")
		if got, err := c.GetCard(t.Context(), later.UUID); err != nil || got.UUID != later.UUID {
			t.Errorf("the refused restore changed the database: %v", err)
		}
		s.stop(t)

		wantOutput(t, p.must(t, "restore", file, "--replace"), "restored 1 card, schema version ", "Newest entry: 20",
			"lacks everything that happened later")
		s = p.serve(t, simulated...)
		c = newClient(t, s.url, token)
		if got, err := c.GetCard(t.Context(), sold.UUID); err != nil || got.Credentials != sold.Credentials {
			t.Errorf("error %v; %v", err, got)
		}
		if _, err := c.GetCard(t.Context(), later.UUID); err == nil {
			t.Error("a card that was ordered after the backup survived the restore")
		}
		s.stop(t)
		p.must(t, "reconcile")
		if path, lite := strings.CutPrefix(url, "sqlite:"); lite {
			if kept, _ := filepath.Glob(path + ".before-restore-*Z"); len(kept) != 1 {
				t.Errorf("kept %v", kept)
			}
		}
	})
}
