package clienttest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/client/clienttest"
)

// The README's program is a separate module that requires only the client.
func TestQuickstart_Runs(t *testing.T) {
	service := clienttest.Start(t)
	program := exec.CommandContext(t.Context(), "go", "run", ".")
	program.Dir = "../examples/quickstart"
	program.Env = append(os.Environ(), "CARDMINT_URL="+service.URL, "CARDMINT_TOKEN="+service.Token, "GOFLAGS=")
	out, err := program.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "pay 1 monero to ") || !strings.Contains(string(out), "valid until ") {
		t.Errorf("%v: %s", err, out)
	}
}
