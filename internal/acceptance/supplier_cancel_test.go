package acceptance_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/supplier/reference"
)

// supplierSecret signs requests to suppliers in tests.
var supplierSecret = card.Secret("whsec_" + base64.StdEncoding.EncodeToString([]byte("for tests of this program only")))

// writeSuppliers writes a file that names the supplier at url, and returns its
// path.
func writeSuppliers(t *testing.T, dir, url string) string {
	t.Helper()
	file := filepath.Join(dir, "suppliers.toml")
	for path, text := range map[string]string{
		file: fmt.Sprintf(
			"[[supplier]]\nname = \"acme\"\nkind = \"http\"\nurl = %q\nsecret_file = \"acme.secret\"\n", url),
		filepath.Join(dir, "acme.secret"): supplierSecret.Reveal() + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// A pending request to a slow supplier is canceled. No card is made, and the
// refund is due.
func TestSupplierCancel_PendingRequest_IsCanceled(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits for seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	secrets, err := supplier.ParseSecrets(supplierSecret)
	if err != nil {
		t.Fatal(err)
	}
	supplierServer, err := reference.Open(
		reference.Config{File: filepath.Join(dir, "supplier.db"), Secrets: secrets, Log: slog.New(slog.DiscardHandler),
			Rules: []reference.Rule{{Behavior: reference.Pending, Probability: 1}}, PendingFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = supplierServer.Close() })
	endpoint := httptest.NewServer(supplierServer)
	t.Cleanup(endpoint.Close)
	file := writeSuppliers(t, dir, endpoint.URL)
	p := newProgram(t, "")
	token := p.account(t)
	s := p.serve(t, serveSimulated("--suppliers", file)...)
	id := s.order(t, token, "1").UUID.String()
	await := func(command []string, want string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !strings.Contains(p.must(t, command...),
			want); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%v never printed %q:\n%s", command, want, p.must(t, "card", "show", id))
			}
		}
	}
	await([]string{"card", "show", id}, "pending, attempts ")
	cancel := []string{"supplier", "cancel", id, "--suppliers", file, "--note", "it takes too long"}
	wantOutput(t, p.must(t, cancel...), "would ask acme to cancel its request", "Nothing was changed")
	for range 2 { // the second call has no effect
		wantOutput(t, p.must(t, append(cancel, "--yes")...), "acme: canceled: no card was made and none will be")
	}
	await([]string{"card", "list", "--attention"}, id)
	wantOutput(t, p.must(t, "card", "show", id), "refund_due", "acme")
	_, stderr, code := p.run("supplier", "cancel", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", "--suppliers", file, "--note",
		"x")
	if code != 1 || !strings.Contains(stderr, "there is no card") || !strings.Contains(stderr, "hint: ") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
