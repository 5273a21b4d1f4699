package app

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
)

func TestReadable_PlainHTTPToAnotherMachine_IsTrue(t *testing.T) {
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

func TestCheckDatabase_OtherMachineWithoutVerifiedCertificate_IsRefused(t *testing.T) {
	for address, want := range map[string]bool{ // whether it is refused
		"sqlite:x.db": false,
		"postgres://u:p@db.example/x?sslmode=verify-full":                     false,
		"postgres://u:p@db.example/x?sslmode=verify-ca":                       false,
		"postgres://u:p@db.example/x?sslrootcert=system":                      false, // implies verify-full
		"postgres://u:p@db.example/x":                                         true,  // TLS with any certificate
		"postgres://u:p@db.example/x?sslmode=require":                         true,
		"postgres://u:p@db.example/x?sslmode=disable":                         true,
		"postgres://u:p@db.example/x?sslmod%65=disable":                       true,
		"postgres://u:p@db.example/x?sslmod%65=verify-full":                   false,
		"postgres://u:p@db.example/x?a=b&sslmode=prefer":                      true,
		"postgres://u:p@db.example/x?sslmode=allow":                           true,
		"postgres://u:p@127.0.0.1:5432/x?sslmode=disable":                     false,
		"postgres://u:p@localhost/x?sslmode=disable":                          false,
		"postgres://u@[::1]:5432/x?sslmode=disable":                           false,
		"postgres:///x?host=/run/postgresql&sslmode=disable":                  false,
		"postgres:///x?host=@abstract":                                        false,
		"postgres:///x?host=db.example&sslmode=disable":                       true,
		"postgres:///x?%68ost=db.example":                                     true,
		"postgres://localhost/x?hostaddr=10.0.0.7":                            true,
		"postgres://db.example/x?hostaddr=127.0.0.1":                          false,
		"postgres://u:p@127.0.0.1:5432,db.example:5433/x?sslmode=disable":     true,
		"postgres://u:p@127.0.0.1:5432,db.example:5433/x?sslmode=verify-full": false,
		"postgres://u:p@127.0.0.1:5432,localhost:5433/x?sslmode=disable":      false,
		// lib/pq disables TLS for all of them
		"postgres:///x?host=/run/postgresql,db.example&sslmode=verify-full":         true,
		"postgresql://u:sslmode%3Ddisable@db.example/x?sslmode=require":             true,
		"postgresql://u:sslmode%3Ddisable@db.example/x?sslmode=verify-full":         false,
		"postgres://u:p@db.example/x?sslmode=disable&connect_timeout=5":             true,
		"postgres://127.0.0.1@db.example:5432/x?application_name=y&sslmode=disable": true,
	} {
		wantRefusal(t, address, want)
	}
}

func TestCheckDatabase_EnvironmentAndServiceFile_Count(t *testing.T) {
	services := filepath.Join(t.TempDir(), "services")
	write(t, services, "[far]\nhost=db.example\nsslmode=disable\n[safe]\nhost=db.example\nsslmode=verify-full\n", 0o600)
	for name, tt := range map[string]struct {
		env     map[string]string
		address string
		want    bool
	}{
		"PGSSLMODE is weak":  {map[string]string{"PGSSLMODE": "disable"}, "postgres://db.example/x", true},
		"PGSSLMODE verifies": {map[string]string{"PGSSLMODE": "verify-full"}, "postgres://db.example/x", false},
		"the URL wins": {map[string]string{"PGSSLMODE": "verify-full"},
			"postgres://db.example/x?sslmode=require", true},
		"PGHOST":                 {map[string]string{"PGHOST": "db.example"}, "postgres:///x?sslmode=disable", true},
		"PGHOST is this machine": {map[string]string{"PGHOST": "/run/postgresql"}, "postgres:///x?sslmode=disable", false},
		"PGHOSTADDR":             {map[string]string{"PGHOSTADDR": "192.0.2.1"}, "postgres://localhost/x", true},
		"PGSERVICE":              {map[string]string{"PGSERVICE": "far", "PGSERVICEFILE": services}, "postgres:///x", true},
		"service":                {map[string]string{"PGSERVICEFILE": services}, "postgres:///x?service=far", true},
		"a service that verifies": {map[string]string{"PGSERVICE": "safe", "PGSERVICEFILE": services}, "postgres:///x",
			false},
		"SQLite has no connection": {map[string]string{"PGHOST": "db.example", "PGSSLMODE": "disable"}, "sqlite:x.db", false},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range tt.env {
				t.Setenv(key, value)
			}
			wantRefusal(t, tt.address, tt.want)
		})
	}
}

// wantRefusal checks whether live mode refuses a database, and that neither
// test mode nor a process with the explicit flag does.
func wantRefusal(t *testing.T, address string, want bool) {
	t.Helper()
	d := Deployment{Mode: card.LiveMode, DatabaseURL: address}
	d.NameSessions("all")
	err := d.CheckDatabase()
	if got := err != nil && strings.Contains(err.Error(), "the certificate of PostgreSQL is not verified"); got != want ||
		err != nil && !got {
		t.Errorf("%s: %v", address, err)
	}
	for _, d := range []*Deployment{
		{Mode: card.TestMode, DatabaseURL: address},
		{Mode: card.LiveMode, DatabaseURL: address, AllowUnverified: true},
	} {
		if err := d.CheckDatabase(); err != nil {
			t.Errorf("%s, %s mode, allowed %t: %v", address, d.Mode, d.AllowUnverified, err)
		}
	}
}

func TestCheckLive_TestSettings_AreRefused(t *testing.T) {
	coins := coinsFor(t, "monero")
	for name, tt := range map[string]struct {
		change func(*Config, *Deployment)
		want   string // in the error; "" if there is none
	}{
		"nothing":       {func(*Config, *Deployment) {}, ""},
		"simulated":     {func(c *Config, _ *Deployment) { c.Simulated = true }, "--simulated"},
		"sandbox cards": {func(c *Config, _ *Deployment) { c.Supplier.File = "" }, "no supplier of real cards"},
		"open database": {func(_ *Config, d *Deployment) {
			d.DatabaseURL = "postgres://db.example/x?sslmode=disable"
		}, "not verified"},
		"rates over http": {func(c *Config, _ *Deployment) {
			c.Rates.Live.RateURL = map[string]string{"kraken": "http://proxy.example"}
		}, "--rate-url kraken: plain http"},
		"in test mode, all": {func(c *Config, d *Deployment) {
			d.Mode, c.Simulated, c.Supplier.File = card.TestMode, true, ""
		}, ""},
	} {
		p := process{Deployment: &Deployment{Mode: card.LiveMode, DatabaseURL: "sqlite:x.db"}, cfg: Config{Coins: coins}}
		p.cfg.Supplier.File = "suppliers.toml"
		tt.change(&p.cfg, p.Deployment)
		switch err := p.checkLive(); {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestWarnAboutBounds_LiveModeWithoutThem_OneLinePerCurrency(t *testing.T) {
	coins := coinsFor(t, "monero")
	set := map[string]string{"monero": "50"}
	for name, tt := range map[string]struct {
		mode           string
		floor, ceiling map[string]string
		want           string // in the log; "" for nothing
	}{
		"neither":    {card.LiveMode, nil, nil, `currency=monero missing="--rate-floor, --rate-ceiling"`},
		"no ceiling": {card.LiveMode, set, nil, "currency=monero missing=--rate-ceiling"},
		"another coin's floor": {card.LiveMode, map[string]string{"bitcoin": "1"}, set,
			"currency=monero missing=--rate-floor"},
		"both":                  {card.LiveMode, set, set, ""},
		"test mode, no warning": {card.TestMode, nil, nil, ""},
	} {
		var log strings.Builder
		p := process{Deployment: &Deployment{Mode: tt.mode, Log: slog.New(slog.NewTextHandler(&log, nil))},
			cfg: Config{Coins: coins}}
		p.cfg.Rates.Live.RateFloor, p.cfg.Rates.Live.RateCeiling = tt.floor, tt.ceiling
		p.warnAboutBounds()
		if tt.want == "" && log.Len() > 0 || strings.Count(log.String(), "level=WARN") > 1 ||
			!strings.Contains(log.String(), tt.want) {
			t.Errorf("%s: logged %q, want %q", name, log.String(), tt.want)
		}
	}
}

// coinsFor returns coins with their default settings.
func coinsFor(t *testing.T, codes ...string) (coins []Coin) {
	t.Helper()
	for _, code := range codes {
		coin, known := chain.ByCode(code)
		if !known {
			t.Fatalf("no coin %s", code)
		}
		coins = append(coins, Coin{coin, coin.Settings()})
	}
	return coins
}
