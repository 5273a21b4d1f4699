package acceptance_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
)

// While payments are simulated, no card is requested from a supplier that turns
// out to make real cards, not even for an order that is already paid.
func TestDev_SupplierOfRealCards_NoCardIsRequested(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		mode string
		args []string
	}{
		"mode not stated": {``, []string{"dev"}},
		"live":            {`,"mode":"live"`, serveSimulated()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requested atomic.Int64
			var mode atomic.Value
			mode.Store(`,"mode":"test"`)
			real := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/offers" {
					w.Header().Set("Content-Type", "application/json")
					_, _ = fmt.Fprintf(w, `{"offers":[{"min_usd":"50","max_usd":"750","left":null}],"key_retention_seconds":null%s}`,
						mode.Load())
					return
				}
				requested.Add(1)
				w.WriteHeader(http.StatusInternalServerError)
			}))
			t.Cleanup(real.Close)
			p := newProgram(t, "")
			token := p.account(t)
			file := writeSuppliers(t, t.TempDir(), real.URL)
			s := p.serve(t, append(tt.args, "--suppliers", file)...)
			shop := newClient(t, s.url, token)
			c, err := shop.CreateCard(t.Context(),
				client.CreateCardRequest{USDAmount: decimal.NewFromInt(750), Currency: "monero"})
			must(t, err)
			mode.Store(tt.mode)
			s.awaitOutput(t, time.Minute, "the supplier makes real cards")
			_, err = shop.SimulatePayment(t.Context(), c.UUID, client.SimulatePaymentRequest{})
			must(t, err)
			id := c.UUID
			awaitShown(t, p, id, "the supplier makes real cards")
			if n := requested.Load(); n > 0 {
				t.Errorf("%d requests for a card that was paid with simulated money", n)
			}
			_, stderr, code := p.run("supplier", "check", "--suppliers", file)
			if code != 1 {
				t.Errorf("supplier check: exit code %d\n%s", code, stderr)
			}
			s.stop(t)
		})
	}
}

// awaitShown waits until the output of card show contains want.
func awaitShown(t *testing.T, p *program, id uuid.UUID, want string) {
	t.Helper()
	shown := ""
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(shown, want); time.Sleep(50 * time.Millisecond) {
		if shown = p.must(t, "card", "show", id.String()); time.Now().After(deadline) {
			t.Fatalf("%q is not shown:\n%s", want, shown)
		}
	}
}

func TestServe_StockInWrongMode_IsRefused(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	p.account(t)
	for name, tt := range map[string]struct {
		entry string
		args  []string
		want  string
	}{
		"simulated": {"", serveSimulated(), "test mode: the cards of supplier \"shelf\" are real"},
		"dev":       {"", []string{"dev"}, "test mode: the cards of supplier \"shelf\" are real"},
		"import":    {"", []string{"stock", "list"}, "test mode: the cards of supplier \"shelf\" are real"},
		"test in live": {"test = true\n", []string{"serve", "--mode", "live"},
			"live mode: the cards of supplier \"shelf\" are not real"},
		"marked as test": {"test = true\n", []string{"stock", "list"}, ""},
	} {
		file := writeFile(t, "suppliers.toml", "[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\n"+tt.entry)
		_, stderr, code := p.run(append(tt.args, "--suppliers", file)...)
		if (code == 0) != (tt.want == "") || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d, want %q\n%s", name, code, tt.want, stderr)
		}
	}
}
