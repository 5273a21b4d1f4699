//go:build drill

package acceptance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/supplier/reference"
)

// TestDrill_Secrets_AreNotLeaked issues cards from a stock and from a supplier,
// at the most verbose log levels. Then it searches logs, responses, webhooks,
// command output, and the files and logs of the database for card numbers,
// passwords and the service's own secrets. Finally it plants a number, to prove
// that the search works.
func TestDrill_Secrets_AreNotLeaked(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: needs PostgreSQL")
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		newLeakTest(t, "sqlite:"+filepath.Join(dir, "x.db"), dir).checkLeaks()
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cluster := rig.NewCluster(t, "log_min_duration_statement=0", "log_parameter_max_length=-1",
			"log_parameter_max_length_on_error=-1",
			"log_statement=all", "logging_collector=on")
		newLeakTest(t, cluster.URL("postgres"), cluster.Files()).checkLeaks()
	})
}

// leakTest is a service, its secrets, and everything that it has output.
type leakTest struct {
	t       *testing.T
	url     string // of the database
	files   []string
	secrets map[string]string // by description

	mu sync.Mutex
	// Responses that may not contain credentials, webhook requests, and the
	// output of commands.
	output bytes.Buffer
}

func newLeakTest(t *testing.T, url, files string) *leakTest {
	t.Helper()
	c := &leakTest{t: t, url: url, files: []string{files},
		secrets: map[string]string{"supplier's secret": supplierSecret.Reveal()}}
	p := newProgram(t, url)
	p.env = append(p.env, "CARDMINT_LOG_LEVEL=debug", "GOTRACEBACK=crash")
	token := p.account(t)
	c.secrets["token"] = token

	s := p.serve(t, serveSimulated("--webhook-insecure", "--suppliers", c.suppliers(p))...)
	c.sellCards(newClient(t, s.url, token))
	c.sendSecrets(s.url, token)
	c.orderWithClientData(s.url, token)
	c.runCommands(p)
	c.record(s.scrape(t))
	s.Signal(t, syscall.SIGABRT) // logs all stacks
	s.Wait(t, time.Minute)
	if strings.Contains(s.Output(), clientData) {
		t.Error("client data is in the log")
	}
	c.output.WriteString(s.Output())
	return c
}

// clientData is the reference and metadata of a card. It may appear only in the
// database and in responses to its client.
const clientData = "private-client-data-canary"

// orderWithClientData orders, pays and searches for a card with client data,
// and sends refused requests that contain it.
func (c *leakTest) orderWithClientData(url, token string) {
	t := c.t
	t.Helper()
	const own = `"currency":"monero","reference":"` + clientData + `","metadata":{"` + clientData + `":"` + clientData + `"`
	_, made := c.call(url, token, [3]string{"POST", "/api/cards", `{"usd_amount":100,` + own + `}}`})
	var one struct{ UUID string }
	if err := json.Unmarshal(made, &one); err != nil {
		t.Fatal(err)
	}
	for _, request := range [][3]string{
		{"POST", "/api/sandbox/cards/" + one.UUID + "/payments", "{}"},
		{"GET", "/api/cards?reference=" + clientData, ""},
		{"GET", "/api/events?after=1", ""},
		{"GET", "/api/cards?reference=" + clientData + "&limit=0", ""},
		{"POST", "/api/cards", `{"usd_amount":49,` + own + `}}`},
		{"POST", "/api/cards", `{"usd_amount":100,` + own + `,"a":1}}`},
	} {
		status, body := c.call(url, token, request)
		if shown := bytes.Contains(body, []byte(clientData)); shown != (status < 400) {
			t.Errorf("%s %s: %d %s", request[0], request[1], status, body)
		}
	}
}

// call sends a request, given as method, path and body, and returns the status
// and the body of the response.
func (c *leakTest) call(url, token string, request [3]string) (int, []byte) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), request[0], url+request[1], strings.NewReader(request[2]))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, body
}

// suppliers starts a supplier, fills a stock, and returns the path of
// suppliers.toml.
func (c *leakTest) suppliers(p *program) string {
	t := c.t
	t.Helper()
	stock, numbers := writeStock(t, 2)
	for number, rest := range numbers {
		c.secrets["number in stock"], c.secrets["password in stock"] = number, rest[strings.LastIndex(rest, ",")+1:]
	}
	dir := filepath.Dir(stock)
	secrets, err := supplier.ParseSecrets(supplierSecret)
	if err != nil {
		t.Fatal(err)
	}
	supplierServer, err := reference.Open(
		reference.Config{File: filepath.Join(dir, "supplier.db"), Secrets: secrets, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = supplierServer.Close() })
	endpoint := httptest.NewServer(supplierServer)
	t.Cleanup(endpoint.Close)
	file := writeSuppliers(t, dir, endpoint.URL)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "\n[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\npriority = -1\n"...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c.record(p.must(t, "stock", "import", stock, "--supplier", "shelf", "--suppliers", file))
	c.record(p.must(t, "stock", "import", stock, "--supplier", "shelf", "--suppliers", file, "--yes"))
	// A second import is refused.
	_, refused, _ := p.run("stock", "import", stock, "--supplier", "shelf", "--suppliers", file, "--yes")
	c.record(refused)
	return file
}

func (c *leakTest) record(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.output.WriteString(text + "\n")
}

// sellCards sells cards and records their secrets.
func (c *leakTest) sellCards(shop *client.Client) {
	t := c.t
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.record(fmt.Sprint(r.Header, string(body)))
	}))
	t.Cleanup(receiver.Close)
	hook, err := shop.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: receiver.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.secrets["webhook's secret"] = hook.Secret.Reveal()
	for i, usd := range []int64{100, 150, 100, 151} {
		order := client.CreateCardRequest{USDAmount: decimal.NewFromInt(usd), Currency: "monero"}
		card, err := shop.CreateCard(t.Context(), order, client.WithIdempotencyKey(fmt.Sprint("order-", i)))
		if err == nil {
			_, err = shop.SimulatePayment(t.Context(), card.UUID, client.SimulatePaymentRequest{})
		}
		if err == nil {
			card, err = shop.WaitForCard(t.Context(), card.UUID)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.secrets[fmt.Sprint("number of card ", i)] = card.Credentials.CardNumber
		c.secrets[fmt.Sprint("password of card ", i)] = card.Credentials.URLPassword
	}
}

// sendSecrets sends requests with card numbers in unexpected places.
func (c *leakTest) sendSecrets(url, token string) {
	number := c.secrets["number of card 0"]
	for _, request := range [][3]string{
		{"POST", "/api/cards", `{"usd_amount":"150","currency":"monero","` + number + `":1}`},
		{"POST", "/api/cards", `{"` + number + `":1,"` + number + `":2}`},
		{"POST", "/api/cards",
			`{"usd_amount":"` + number + `","currency":"` + number + `","refund_address":"` + number + `"}`},
		{"POST", "/api/webhooks", `{"url":"https://shop.example/","` + number + `":[]}`},
		{"POST", "/api/webhooks", `{"url":"ftp://` + number + `"}`},
		{"GET", "/api/cards/" + number, ""},
		{"GET", "/api/cards?status=" + number + "&cursor=" + number, ""},
		{"GET", "/" + number + "?" + number + "=" + number, ""},
	} {
		status, body := c.call(url, token, request)
		if status < 400 && !strings.HasPrefix(request[1], "/api/webhooks") {
			c.t.Errorf("%s %s: %d", request[0], request[1], status)
		}
		if status >= 400 {
			c.record(string(body))
		}
	}
}

// runCommands records the output of commands that print stored data.
func (c *leakTest) runCommands(p *program) {
	c.t.Helper()
	backup := filepath.Join(c.t.TempDir(), "backup")
	c.files = append(c.files, filepath.Dir(backup))
	for _, args := range [][]string{{"backup", backup}, {"card", "list"}, {"transfers"}, {"token", "list"},
		{"reconcile", "--json"}, {"reconcile", "--full"}} {
		stdout, stderr, _ := p.run(args...)
		c.record(stdout + stderr)
	}
	if _, err := os.Stat(backup); err != nil {
		c.t.Error(err)
	}
}

// checkLeaks searches for every secret, and then for a planted one.
func (c *leakTest) checkLeaks() {
	t := c.t
	t.Helper()
	for what, secret := range c.secrets {
		if len(secret) < 8 {
			t.Errorf("%s has only %d characters", what, len(secret))
		}
		if strings.Contains(c.output.String(), secret) {
			t.Errorf("the output contains the %s", what)
		}
		for _, path := range c.filesWith(secret) {
			t.Errorf("the %s is in %s", what, path)
		}
	}
	t.Logf("%d secrets occur neither in %d bytes of output nor in the files", len(c.secrets), c.output.Len())

	leak := "9900000000000004"
	db := rig.OpenSQL(t, c.url)
	if _, err := db.Exec("INSERT INTO settings (name, value) VALUES ('leak', '" + leak + "')"); err != nil {
		t.Fatal(err)
	}
	if len(c.filesWith(leak)) == 0 {
		t.Error("the search does not find the planted number")
	}
}

// filesWith returns the files that contain text.
func (c *leakTest) filesWith(text string) (found []string) {
	c.t.Helper()
	for _, dir := range c.files {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil //nolint:nilerr // the server may have just deleted the file
			}
			content, err := os.ReadFile(path)
			if err == nil && bytes.Contains(content, []byte(text)) {
				found = append(found, path)
			}
			return nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return found
}
