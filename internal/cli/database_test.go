package cli

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
)

// Every command that opens a database checks it, not only serve.
func TestCheckDatabase_EveryCommand_IsRefused(t *testing.T) {
	g := &globals{Deployment: app.Deployment{Mode: card.LiveMode, DatabaseURL: "postgres://db.invalid/x?sslmode=require",
		Keys: filepath.Join(t.TempDir(), "x.keys"), Log: slog.New(slog.DiscardHandler)},
		stdout: io.Discard, stderr: io.Discard}
	_, opened := g.OpenStore(t.Context(), 1)
	_, migrated := g.Migrate(t.Context())
	for name, err := range map[string]error{
		"open":    opened,
		"migrate": migrated,
		"backup":  backupCommand{File: filepath.Join(t.TempDir(), "backup")}.Run(t.Context(), g),
		"restore": restoreCommand{File: filepath.Join(t.TempDir(), "backup")}.Run(t.Context(), g),
	} {
		if err == nil || !strings.Contains(err.Error(), "is not verified") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
