package acceptance_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

var (
	utcMillis = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	isTime    = regexp.MustCompile(`(_at|^at|^since|^as_of|^timestamp|_entry)$`)
	isMoney   = regexp.MustCompile(
		`(amount|usd|^received|^surplus|^lost|^accepted|^refunded|^written_off|^counted|^credited)$`)
)

// checkJSON fails the test if a value breaks the rules for JSON output: amounts
// are strings, times are in UTC with milliseconds.
func checkJSON(t *testing.T, path, name string, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			checkJSON(t, path+"."+key, key, inner)
		}
	case []any:
		for _, inner := range v {
			checkJSON(t, path+"[]", name, inner)
		}
	case json.Number:
		if isMoney.MatchString(name) || strings.ContainsAny(v.String(), ".e") {
			t.Errorf("%s is the number %s", path, v)
		}
	case string:
		if isTime.MatchString(name) && !utcMillis.MatchString(v) {
			t.Errorf("%s is %q", path, v)
		}
		if isMoney.MatchString(name) && !regexp.MustCompile(`^\d+(\.\d+)?$`).MatchString(v) {
			t.Errorf("%s is %q", path, v)
		}
	}
}

func TestCLI_JSON_PrintsOneLine(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	dir := t.TempDir()
	url := "sqlite:" + filepath.Join(dir, "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	p.env = append(p.env,
		"CARDMINT_SUPPLIERS="+
			writeFile(t, "suppliers.toml", "[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\nlow_stock = 0\n"))
	file, _ := stockFile(t, "150", 1, 2)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--sandbox-supplier", "prompt", "--suppliers", "")
	paid, open := s.order(t, token, "1").UUID.String(), s.order(t, token, "0.5").UUID.String()
	db := rig.OpenSQL(t, url)
	sendStray(t, p, db, "5c1f7a", 2e12)
	s.stop(t)
	_ = db.Close() // restore is refused while a connection is open
	for _, tt := range []struct {
		command string
		code    int
		has     string
	}{
		{"version", 0, `"version":"`},
		{"migrate", 0, `"schema_version":`},
		{"account create other", 0, `"name":"other"`},
		{"token create other --name x --ttl 720h", 0, `"token":"cm_test_`},
		{"token list", 0, `"revoked_at":null`},
		{"card list", 0, `"usd_amount":"150"`},
		{"card list --account other", 0, "[]"},
		{"card list --attention", 0, "[]"},
		{"card show " + paid, 0, `"waits_for":"nothing"`},
		{"card show " + open, 0, `"amount_due":"0.5"`},
		{"transfers list --unattributed", 0, `"amount":"2"`},
		{"transfers --all", 0, `"decision":null`},
		{"reconcile", 3, `"agrees":true`},
		{"card resolve " + open + " accept --note x", 0,
			`{"recorded":false,"nothing_left":false,"card":"` + open +
				`","decision":"accept","currency":"monero","amount":"0.5"`},
		{"card resolve " + open + " accept --note x --amount 0.5 --yes", 0, `{"recorded":true,"nothing_left":false`},
		{"card purge " + paid + " --note x", 0, `{"recorded":false,"nothing_left":false`},
		{"transfers attribute 5c1f7a --refunded --note x", 0,
			`"decision":"refund","currency":"monero","amount":"2","card":null`},
		{"transfers attribute 5c1f7a --refunded --note x --amount 2 --yes", 0, `{"recorded":true,"nothing_left":false`},
		{"transfers attribute 5c1f7a --refunded --note x --amount 2 --yes", 0, `{"recorded":false,"nothing_left":true`},
		{"keys list", 0, `"state":"primary"`},
		{"keys add", 0, `"key":"`},
		{"stock import " + file + " --supplier shelf", 0, `"imported":false,"cards":2`},
		{"stock import " + file + " --supplier shelf --yes", 0, `"imported":true,"cards":2`},
		{"stock list", 0, `"free":2`},
		{"stock hold --supplier shelf", 0, `"changed":2`},
		{"stock release --supplier shelf --yes", 0, `"changed":2`},
		{"supplier check", 0, `"offers":[{"min_usd":"150","max_usd":"150","left":2}]`},
		{"backup " + filepath.Join(dir, "copy"), 0, `"cards":2`},
		{"restore --replace " + filepath.Join(dir, "copy"), 0, `"kept":["`},
		{"wallet check --monero-daemon-url http://127.0.0.1:1", 1, `"usable":false`},
	} {
		stdout, stderr, code := p.run(append(strings.Fields(tt.command), "--json")...)
		if code != tt.code || strings.Count(stdout, "\n") != 1 || !strings.HasSuffix(stdout, "\n") ||
			!strings.Contains(stdout, tt.has) {
			t.Errorf("%s: exit code %d, want %d and %s\n%s%s", tt.command, code, tt.code, tt.has, stdout, stderr)
			continue
		}
		decoder := json.NewDecoder(strings.NewReader(stdout))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			t.Errorf("%s: %v\n%s", tt.command, err, stdout)
		}
		checkJSON(t, tt.command, "", value)
		if strings.Contains(stdout, "card_number") {
			t.Errorf("%s prints credentials", tt.command)
		}
	}
}

// A stock does not record requests, so supplier cancel can't guarantee that no
// card follows.
func TestSupplierCancel_Stock_GuaranteesNothing(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	token := p.account(t)
	p.env = append(p.env,
		"CARDMINT_SUPPLIERS="+
			writeFile(t, "suppliers.toml", "[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\n"))
	file, _ := stockFile(t, "150", 1, 1)
	p.must(t, "stock", "import", file, "--supplier", "shelf", "--yes")
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	id := s.order(t, token, "1").UUID
	s.stop(t)
	cancel := []string{"supplier", "cancel", id.String(), "--note", "x"}
	wantOutput(t, p.must(t, cancel...),
		fmt.Sprintf(
			"would free what the stock of shelf has reserved for card %s; if it is paid, it gets an item nevertheless", id))
	wantOutput(t, p.must(t, append(cancel, "--yes", "--json")...), `"supplier":"shelf","asked":true,"outcome":"issued"`)
	wantOutput(t, p.must(t, append(cancel, "--yes")...), "shelf: an item was issued to the card, and stays issued")
	if _, err := rig.OpenSQL(t, url).Exec("UPDATE stock SET state = 'reserved', reserved_until = 0 WHERE card_uuid = ?",
		id.String()); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, p.must(t, append(cancel, "--yes")...),
		"shelf: nothing is reserved for the card. If it is paid, it gets an item at the next attempt")
}
