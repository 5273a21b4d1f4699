package monero_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/cardmint/cardmint/internal/chain/monero"
)

// Logins and the wallet's password are read only from files that are private to
// their owner.
func TestSettings_SecretReadableByOthers_IsRejected(t *testing.T) {
	for _, flag := range []string{"--monero-daemon-login", "--monero-wallet-login", "--monero-wallet-password"} {
		for mode, want := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o620: false,
			0o644: false} {
			file := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(file, []byte("user:hunter2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
			settings := monero.Coin().Settings()
			parser, err := kong.New(settings)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse([]string{flag, file, "--monero-wallet-file", "view"}); err != nil {
				t.Fatal(err)
			}
			node, err := settings.Open()
			if err == nil {
				node.Close()
			}
			if (err == nil) != want || err != nil &&
				(!strings.Contains(err.Error(), "can be read by others than its owner") ||
					strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("%s, mode %o: %v", flag, mode, err)
			}
		}
	}
}
