package cli

import (
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

func TestReadable_PlainHTTPToAnotherMachine(t *testing.T) {
	for address, want := range map[string]bool{
		"http://127.0.0.1:18081":     false,
		"http://localhost:18081":     false,
		"http://[::1]:18081/x":       false,
		"https://node.example":       false,
		"http://node.example:18081":  true,
		"http://10.0.0.7:18081":      true,
		"http://localhost.evil.test": true,
		"http://127.0.0.1.evil.test": true,
		"HTTP://node.example":        true,
	} {
		if got := readable(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

func TestReadableDatabase_UnencryptedToAnotherMachine(t *testing.T) {
	for address, want := range map[string]bool{
		"sqlite:x.db": false,
		"postgres://u:p@db.example/x?sslmode=verify-full":                           false,
		"postgres://u:p@db.example/x":                                               false, // lib/pq insists on TLS then
		"postgres://u:p@db.example/x?sslmode=disable":                               true,
		"postgres://u:p@db.example/x?a=b&sslmode=prefer":                            true,
		"postgres://u:p@db.example/x?sslmode=allow":                                 true,
		"postgres://u:p@127.0.0.1:5432/x?sslmode=disable":                           false,
		"postgres://u@[::1]:5432/x?sslmode=disable":                                 false,
		"postgres:///x?host=/run/postgresql&sslmode=disable":                        false,
		"postgres:///x?host=db.example&sslmode=disable":                             true,
		"postgres://u:p@127.0.0.1:5432,db.example:5433/x?sslmode=disable":           true,
		"postgres://u:p@127.0.0.1:5432,localhost:5433/x?sslmode=disable":            false,
		"postgresql://u:sslmode%3Ddisable@db.example/x?sslmode=require":             false,
		"postgres://u:p@db.example/x?sslmode=disable&connect_timeout=5":             true,
		"postgres://127.0.0.1@db.example:5432/x?application_name=y&sslmode=disable": true,
	} {
		if got := readableDatabase(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

func TestCheckLive_RefusesWhatIsForTests(t *testing.T) {
	coins, err := newCoinFlagsFor("monero").enabled()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*serveCommand, *globals)
		want   string // in the error; "" if there is none
	}{
		"nothing":       {func(*serveCommand, *globals) {}, ""},
		"simulated":     {func(c *serveCommand, _ *globals) { c.Simulated = true }, "--simulated"},
		"sandbox cards": {func(c *serveCommand, _ *globals) { c.Supplier.File = "" }, "no supplier of real cards"},
		"open database": {func(_ *serveCommand, g *globals) { g.DatabaseURL = "postgres://db.example/x?sslmode=disable" }, "not encrypted"},
		"rates over http": {func(c *serveCommand, _ *globals) {
			c.Rates.Live.RateURL = map[string]string{"kraken": "http://proxy.example"}
		}, "--rate-url kraken: plain http"},
		"in test mode, all": {func(c *serveCommand, g *globals) { g.Mode, c.Simulated, c.Supplier.File = card.TestMode, true, "" }, ""},
	} {
		c, g := serveCommand{}, globals{Mode: card.LiveMode, DatabaseURL: "sqlite:x.db"}
		c.Supplier.File = "suppliers.toml"
		tt.change(&c, &g)
		switch err := c.checkLive(&g, coins); {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// newCoinFlagsFor returns the flags of coins as they are without arguments.
func newCoinFlagsFor(codes ...string) coinFlags {
	f := newCoinFlags()
	f.Enabled = codes
	return f
}
