//go:build drill

package acceptance_test

import (
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/failpoint"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/supplier/reference"
)

var failpointKills = flag.Int("failpoint-kills", 2, "how often TestFailpoints kills a worker at each point")

// buildWithFailpoints builds the program with its failpoints, once for all
// tests.
var buildWithFailpoints = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("go", "build", "-tags", "nomsgpack,failpoints", "-o", binary+"-failpoints",
		"../../cmd/cardmint").CombinedOutput()
})

// TestFailpoints kills the worker at the worst points for a crash. In the end,
// the supplier's ledger must contain exactly one entry for each issued card,
// each event must have been delivered, and the books must agree.
func TestFailpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: kills processes for a minute")
	}
	if out, err := buildWithFailpoints(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, name := range failpoint.Names() {
		t.Run(strings.ReplaceAll(string(name), "/", " "), func(t *testing.T) {
			t.Parallel()
			f := newFailpointTest(t, name)
			for range *failpointKills {
				f.kill()
			}
			f.finish()
		})
	}
}

// failpointTest is a service whose worker is killed repeatedly.
type failpointTest struct {
	t        *testing.T
	point    failpoint.Name
	program  *program
	api      *server
	client   *client.Client
	supplier *reference.Server
	worker   []string // command-line arguments
	cards    []*client.Card
	declined int // number of cards that the supplier must decline

	mu        sync.Mutex
	delivered map[string]bool // events
}

func newFailpointTest(t *testing.T, point failpoint.Name) *failpointTest {
	t.Helper()
	dir := t.TempDir()
	f := &failpointTest{t: t, point: point, program: newProgram(t, "sqlite:"+filepath.Join(dir, "x.db")),
		delivered: map[string]bool{}}
	secrets, err := supplier.ParseSecrets(supplierSecret)
	if err != nil {
		t.Fatal(err)
	}
	f.supplier, err = reference.Open(
		reference.Config{File: filepath.Join(dir, "supplier.db"), Secrets: secrets, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.supplier.Close() })
	endpoint := httptest.NewServer(f.supplier)
	t.Cleanup(endpoint.Close)
	suppliers := writeSuppliers(t, dir, endpoint.URL)
	f.worker = serveSimulated("--role", "worker", "--suppliers", suppliers, "--webhook-insecure", "--listen", "127.0.0.1:0")

	token := f.program.account(t)
	f.api = f.program.serve(t, serveSimulated("--role", "all", "--suppliers", suppliers, "--webhook-insecure")...)
	first := newClient(t, f.api.url, token)
	for range *failpointKills {
		c, err := first.CreateCard(t.Context(),
			client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"})
		if err != nil {
			t.Fatal(err)
		}
		f.cards = append(f.cards, c)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.delivered[r.Header.Get("webhook-id")] = true
	}))
	t.Cleanup(receiver.Close)
	if _, err := first.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: receiver.URL}); err != nil {
		t.Fatal(err)
	}
	f.api.stop(t)
	// The API does not become ready, because it gets no addresses without a
	// worker.
	f.api = f.program.startListening(t, serveSimulated("--role", "api", "--webhook-insecure", "--max-blind", "24h")...)
	f.client = newClient(t, f.api.url, token)
	return f
}

// kill pays for the next card, and starts a worker that dies at the failpoint.
func (f *failpointTest) kill() {
	f.t.Helper()
	if f.point == failpoint.Refusing {
		f.supplier.Behave(reference.Rule{Behavior: reference.Declining, Next: 1})
		f.declined++
	}
	next := f.cards[0]
	f.cards = append(f.cards[1:], next)
	if _, err := f.client.SimulatePayment(f.t.Context(), next.UUID, client.SimulatePaymentRequest{}); err != nil {
		f.t.Fatal(err)
	}
	f.releaseClaims()
	cmd := exec.Command(binary+"-failpoints", f.worker...)
	cmd.Env = append(f.program.env, "CARDMINT_FAILPOINT="+string(f.point))
	worker := rig.Start(f.t, cmd)
	worker.Wait(f.t, time.Minute)
	if status := cmd.ProcessState.String(); status != "signal: killed" {
		f.t.Fatalf("the worker was not killed at %s: %s\n%s", f.point, status, worker.Output())
	}
}

// releaseClaims ends the claims of webhooks, which outlive a killed process by
// half a minute.
func (f *failpointTest) releaseClaims() {
	f.t.Helper()
	url := ""
	for _, e := range f.program.env {
		if after, is := strings.CutPrefix(e, "CARDMINT_DATABASE_URL="); is {
			url = after
		}
	}
	if _, err := rig.OpenSQL(f.t, url).Exec("UPDATE webhooks SET claimed_until = 0, paused_until = 0"); err != nil {
		f.t.Fatal(err)
	}
}

// finish runs a worker until all cards are issued, and verifies the result.
func (f *failpointTest) finish() {
	t := f.t
	t.Helper()
	f.releaseClaims()
	worker := f.program.serve(t, f.worker...)
	defer worker.stop(t)
	issued, due := map[uuid.UUID]bool{}, 0
	for deadline := time.Now().Add(time.Minute); len(issued)+due < len(f.cards); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d cards are issued, %d refunds are due", len(issued), len(f.cards), due)
		}
		due = 0
		for e, err := range f.client.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			switch e.Type {
			case client.EventTypeCardRefundDue:
				due++
			case client.EventTypeCardGenerated:
				issued[e.CardUUID] = true
			}
		}
	}
	if due != f.declined {
		t.Errorf("%d refunds are due, but %d cards were declined", due, f.declined)
	}
	f.verify(issued)
}

func (f *failpointTest) verify(issued map[uuid.UUID]bool) {
	t := f.t
	t.Helper()
	entries, err := f.supplier.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]int{}
	for _, e := range entries {
		if e.What == reference.Made {
			key, _, _ := strings.Cut(e.Key, ".")
			made[key]++
		}
	}
	if len(made) != len(issued) {
		t.Errorf("the supplier made cards for %d keys, but %d cards are issued", len(made), len(issued))
	}
	numbers := map[string]bool{}
	for id := range issued {
		c, err := f.client.GetCard(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if made[id.String()] != 1 || c.Status != client.CardStatusGenerated || numbers[c.Credentials.CardNumber] {
			t.Errorf("card %s is %s; the supplier made it %d times; duplicate number: %t", id, c.Status, made[id.String()],
				numbers[c.Credentials.CardNumber])
		}
		numbers[c.Credentials.CardNumber] = true
	}
	f.awaitDeliveries()
	stdout, stderr, code := f.program.run("reconcile")
	if f.declined == 0 && code != 0 || f.declined > 0 && !strings.Contains(stdout, "supplier declined it") {
		t.Errorf("reconcile: exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

// awaitDeliveries waits until the webhook has received every event.
func (f *failpointTest) awaitDeliveries() {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		missing := 0
		for e, err := range f.client.Events(f.t.Context(), 0) {
			if err != nil {
				f.t.Fatal(err)
			}
			f.mu.Lock()
			if !f.delivered[e.ID.String()] {
				missing++
			}
			f.mu.Unlock()
		}
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("the webhook lacks %d events", missing)
		}
	}
}
