package acceptance_test

import (
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/supplier"
)

func TestSupplierServe_BadConfiguration_ExitsWithHint(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	file := filepath.Join(t.TempDir(), "supplier.db")
	serve := func(args ...string) []string {
		return append([]string{"supplier", "serve", "--listen", "127.0.0.1:0", "--file", file}, args...)
	}
	for name, args := range map[string][]string{
		"a bad secret":             serve("--secret", "canary"),
		"no such behavior":         serve("--be", "kind"),
		"an odd probability":       serve("--be", "slow=2"),
		"no probability":           serve("--be", "slow=NaN"),
		"never":                    serve("--be", "slow=0x"),
		"an odd offer":             serve("--offer", "all"),
		"an offer upside down":     serve("--offer", "200-100"),
		"an odd number of cards":   serve("--offer", "100=-1"),
		"a negative time":          serve("--slowness=-1s"),
		"an odd callback":          serve("--callback-url", "here"),
		"control for everybody":    serve("--control", "0.0.0.0:0"),
		"control by name":          serve("--control", "localhost:0"),
		"no such directory":        serve("--file", "/no/such/directory/x.db"),
		"no address":               serve("--listen", "nowhere"),
		"a ledger that is not":     {"supplier", "ledger", file},
		"a ledger of somebody":     {"supplier", "ledger", p.path},
		"no ledger":                {"supplier", "ledger"},
		"no such command":          {"supplier", "make"},
		"a flag that is not there": serve("--fast"),
	} {
		stdout, stderr, code := p.run(args...)
		if code == 0 || stdout != "" || !regexp.MustCompile(`^cardmint: [^\n]+\nhint: [^\n]+\n$`).MatchString(stderr) ||
			strings.Contains(stderr, "canary") {
			t.Errorf("%s: exit code %d, %q, %q", name, code, stdout, stderr)
		}
	}
}

// A restarted supplier returns the same card for the same key. Its ledger lists
// one card per key, with masked numbers.
func TestSupplierServe_Restarted_SameKeyGetsSameCard(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	file := filepath.Join(t.TempDir(), "supplier.db")
	serve := func() (*server, *supplier.HTTP, string) {
		s := p.launch(t, "supplier", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--file", file,
			"--secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
		found := map[string]string{}
		s.Ready(t, 30*time.Second, func() error {
			for _, line := range regexp.MustCompile(`(?m)^(\w+): (http\S+)$`).FindAllStringSubmatch(s.Output(), -1) {
				found[line[1]] = line[2]
			}
			response, err := http.Get(found["control"] + "/ledger")
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		})
		h, err := supplier.NewHTTP(
			supplier.HTTPConfig{Name: "acme", URL: found["supplier"], Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
				Mode: card.TestMode, Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		return s, h, found["control"]
	}
	s, h, control := serve()
	first, err := h.Submit(t.Context(), issue.Request{Key: "k", USD: 100_00})
	if err != nil || first.Outcome != issue.Issued {
		t.Fatalf("%s, %v", first.Outcome, err)
	}
	put, err := http.NewRequest(http.MethodPut, control+"/behaviour", strings.NewReader(`["out-of-stock=1x","slow=0"]`))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(put); err != nil || response.StatusCode != http.StatusNoContent {
		t.Errorf("%v, %v", response, err)
	}
	if a, err := h.Submit(t.Context(), issue.Request{Key: "l", USD: 100_00}); err != nil || a.Outcome != issue.Declined ||
		!a.Temporary {
		t.Errorf("%s, %v", a.Outcome, err)
	}
	response, err := http.Get(control + "/behaviour")
	if err != nil {
		t.Fatal(err)
	}
	if left, err := io.ReadAll(response.Body); err != nil || strings.TrimSpace(string(left)) != `["slow=0"]` {
		t.Errorf("remaining rules: %s, %v", left, err)
	}
	_ = response.Body.Close()
	s.stop(t)

	s, h, _ = serve()
	again, err := h.Submit(t.Context(), issue.Request{Key: "k", USD: 100_00})
	if err != nil || again != first {
		t.Errorf("got another card, error %v", err)
	}
	ledger := p.must(t, "supplier", "ledger", file)
	number := first.Credentials.CardNumber.Reveal()
	wantOutput(t, ledger, "..."+number[12:], "out_of_stock", "again", "1 cards for 1 keys")
	if strings.Contains(ledger+s.Output(), number) ||
		strings.Contains(ledger+s.Output(), string(card.Secret(number[:12]))) {
		t.Error("the output contains a card number")
	}
	s.stop(t)
}
