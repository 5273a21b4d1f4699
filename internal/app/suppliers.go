package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
)

// maxPerSecond is the highest rate limit of a supplier.
const maxPerSecond = 10_000

// SupplierConfig configures who makes the cards.
type SupplierConfig struct {
	File     string            `name:"suppliers" env:"CARDMINT_SUPPLIERS" placeholder:"FILE" help:"TOML file with the suppliers of cards. Without it, sandbox cards are issued."`
	Patience time.Duration     `name:"refund-after" env:"CARDMINT_REFUND_AFTER" default:"24h" placeholder:"DURATION" help:"How long a paid card waits for suppliers that are out of stock. Then its refund is due (${default})."`
	Sandbox  supplier.Behavior `name:"sandbox-supplier" env:"CARDMINT_SANDBOX_SUPPLIER" default:"prompt" enum:"prompt,slow,pending,ambiguous,declining" placeholder:"BEHAVIOR" help:"How the supplier of sandbox cards behaves: prompt, slow, pending, ambiguous or declining (${default})."`
}

// Suppliers are the configured suppliers, by priority.
type Suppliers struct {
	Entries  []SupplierEntry
	Patience time.Duration
}

// Supplier is a supplier that also lists its offers, without making anything.
type Supplier interface {
	issue.Supplier
	Offers(ctx context.Context) ([]card.Offer, error)
}

// SupplierEntry is one [[supplier]] of the file. The names in the tags are
// documented in docs/suppliers.md.
type SupplierEntry struct {
	Name      string  `toml:"name"`
	Kind      string  `toml:"kind"`
	MinUSD    string  `toml:"min_usd"`
	MaxUSD    string  `toml:"max_usd"`
	Priority  int     `toml:"priority"`
	AtOnce    int     `toml:"at_once"`
	PerSecond float64 `toml:"requests_per_second"`

	Behavior string `toml:"behaviour"` // of a sandbox

	URL            string `toml:"url"`
	SecretFile     string `toml:"secret_file"`
	PreviousSecret string `toml:"previous_secret_file"`
	KeyRetention   string `toml:"key_retention"`
	Timeout        string `toml:"timeout"`
	ValidFor       string `toml:"valid_for"`
	CAFile         string `toml:"ca_file"`

	KeyFile        string `toml:"key_file"`
	Cardholder     string `toml:"cardholder"`
	Page           string `toml:"page"`
	PageSecretFile string `toml:"page_secret_file"`

	MinValidity string `toml:"min_validity"` // of a stock
	LowStock    int64  `toml:"low_stock"`    // likewise
	Test        bool   `toml:"test"`         // the cards of a stock are not real

	Min, Max    card.USD      `toml:"-"`
	MinDuration time.Duration `toml:"-"`
	directory   string        // that secrets are relative to
}

// supplierKind describes a kind of supplier.
type supplierKind struct {
	own  func(SupplierEntry) map[string]bool // settings of the kind, and whether they are set
	open func(SupplierEntry, SupplierOptions) (Supplier, error)
}

// SupplierOptions are the parts of the process that suppliers may use.
type SupplierOptions struct {
	Mode     string
	Store    *store.Store
	Vault    *vault.Vault
	QuoteTTL time.Duration // 0 for the default
	Log      *slog.Logger
}

const (
	sandboxKind = "sandbox"
	// StockKind is the kind of a supplier whose cards are in our own database.
	StockKind = "stock"
)

func supplierKinds() map[string]supplierKind {
	return map[string]supplierKind{
		sandboxKind: {
			own: func(e SupplierEntry) map[string]bool { return map[string]bool{"behaviour": e.Behavior != ""} },
			open: func(e SupplierEntry, _ SupplierOptions) (Supplier, error) {
				behavior := supplier.Behavior(cmp.Or(e.Behavior, string(supplier.Prompt)))
				if !slices.Contains(supplier.Behaviors(), behavior) {
					return nil, fmt.Errorf("there is no behavior %q", e.Behavior)
				}
				return supplier.NewSandbox(e.Name, behavior, time.Now), nil
			},
		},
		"http": {
			own: func(e SupplierEntry) map[string]bool {
				return map[string]bool{"url": e.URL != "", "secret_file": e.SecretFile != "",
					"previous_secret_file": e.PreviousSecret != "",
					"key_retention":        e.KeyRetention != "", "timeout": e.Timeout != "", "valid_for": e.ValidFor != "",
					"ca_file": e.CAFile != ""}
			},
			open: openHTTPSupplier,
		},
		"stripe": {
			own: func(e SupplierEntry) map[string]bool {
				return map[string]bool{"url": e.URL != "", "key_file": e.KeyFile != "", "cardholder": e.Cardholder != "",
					"page":             e.Page != "",
					"page_secret_file": e.PageSecretFile != ""}
			},
			open: openStripe,
		},
		StockKind: {
			own: func(e SupplierEntry) map[string]bool {
				return map[string]bool{"min_validity": e.MinValidity != "", "low_stock": e.LowStock != 0, "test": e.Test}
			},
			open: func(e SupplierEntry, opts SupplierOptions) (Supplier, error) {
				return supplier.NewStock(e.Name, opts.Store, opts.Vault,
					supplier.StockConfig{MinValidity: e.MinDuration, QuoteTTL: opts.QuoteTTL,
						LowStock: e.LowStock, Log: opts.Log})
			},
		},
	}
}

// openStripe opens a supplier of kind stripe. In test mode its API may be a
// fake on this machine.
func openStripe(e SupplierEntry, opts SupplierOptions) (Supplier, error) {
	cfg := supplier.StripeConfig{Name: e.Name, Cardholder: e.Cardholder, URL: e.URL, Page: e.Page,
		Insecure: opts.Mode != card.LiveMode}
	var err error
	if cfg.Key, err = e.secret("key_file", e.KeyFile); err != nil {
		return nil, err
	}
	if cfg.PageSecret, err = e.secret("page_secret_file", e.PageSecretFile); err != nil {
		return nil, err
	}
	s, err := supplier.NewStripe(cfg)
	if err != nil {
		return nil, err
	}
	if opts.Mode != card.LiveMode && s.Live() {
		return nil, errors.New("test mode: key_file has a key that makes real cards, rk_live_...")
	}
	if opts.Mode == card.LiveMode && !s.Live() {
		return nil, errors.New("live mode: key_file has a key for tests, not one that begins with rk_live_")
	}
	return s, nil
}

// openHTTPSupplier opens a supplier of kind http. Test mode allows plain http.
func openHTTPSupplier(e SupplierEntry, opts SupplierOptions) (Supplier, error) {
	cfg := supplier.HTTPConfig{Name: e.Name, URL: e.URL, CAFile: e.path(e.CAFile), Mode: opts.Mode,
		Insecure: opts.Mode != card.LiveMode}
	var err error
	if cfg.Secret, err = e.secret("secret_file", e.SecretFile); err != nil {
		return nil, err
	}
	if e.PreviousSecret != "" {
		if cfg.PreviousSecret, err = e.secret("previous_secret_file", e.PreviousSecret); err != nil {
			return nil, err
		}
	}
	for _, d := range []struct {
		field, text string
		to          *time.Duration
	}{{"key_retention", e.KeyRetention, &cfg.KeyRetention}, {"timeout", e.Timeout, &cfg.Timeout},
		{"valid_for", e.ValidFor, &cfg.ValidFor}} {
		if *d.to, err = duration(d.field, d.text); err != nil {
			return nil, err
		}
	}
	return supplier.NewHTTP(cfg)
}

// duration reads a setting; "" is 0.
func duration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s must be a duration, such as \"720h\"", field)
	}
	return d, nil
}

// path resolves a path in the file, which is relative to the file's directory.
func (e SupplierEntry) path(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(e.directory, path)
}

// Read reads the file of suppliers, if there is one, and checks it without
// sending requests.
func (f SupplierConfig) Read(mode string) (Suppliers, error) {
	if f.Patience < 0 {
		return Suppliers{}, WithHint(errors.New("--refund-after: out of bounds"), "it takes 0 or more, for example 24h")
	}
	s := Suppliers{Patience: f.Patience}
	if f.File == "" {
		s.Entries = []SupplierEntry{
			{Name: "sandbox", Kind: sandboxKind, Behavior: string(f.Sandbox), Min: card.MinUSD, Max: card.MaxUSD}}
	} else {
		text, err := os.ReadFile(f.File)
		if err != nil {
			return Suppliers{}, WithHint(fmt.Errorf("--suppliers: %w", err),
				"name a readable file; docs/suppliers.md describes it")
		}
		if s.Entries, err = parseSuppliers(text, filepath.Dir(f.File)); err != nil {
			return Suppliers{}, WithHint(fmt.Errorf("--suppliers: %s: %w", f.File, err),
				"docs/suppliers.md describes the file; try it with: cardmint supplier check --suppliers %s", f.File)
		}
	}
	return s, s.fit(mode)
}

// fit returns an error if the suppliers can't be used in a mode. Those of kinds
// stripe and http check the mode when they are opened.
func (s Suppliers) fit(mode string) error {
	for _, e := range s.Entries {
		switch {
		case mode == card.TestMode && e.Kind == StockKind && !e.Test:
			return WithHint(fmt.Errorf("test mode: the cards of supplier %q are real", e.Name),
				"use --mode live; if the cards in this stock are for tests only, set test = true")
		case mode == card.LiveMode && (e.Kind == sandboxKind || e.Test):
			return WithHint(fmt.Errorf("live mode: the cards of supplier %q are not real", e.Name),
				"name suppliers of real cards with --suppliers, or use --mode test")
		}
	}
	return nil
}

// parseSuppliers parses a file of suppliers. The files of secrets that it names
// are relative to directory.
func parseSuppliers(text []byte, directory string) ([]SupplierEntry, error) {
	var file struct {
		Supplier []SupplierEntry `toml:"supplier"`
	}
	decoder := toml.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, tomlError(text, err)
	}
	if len(file.Supplier) == 0 {
		return nil, errors.New("it names no supplier: begin one with [[supplier]]")
	}
	names := map[string]bool{}
	for i := range file.Supplier {
		e := &file.Supplier[i]
		e.directory = directory
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("supplier %d (%q): %w", i+1, e.Name, err)
		}
		if names[e.Name] {
			return nil, fmt.Errorf("two suppliers have the name %q", e.Name)
		}
		names[e.Name] = true
	}
	slices.SortStableFunc(file.Supplier, func(a, b SupplierEntry) int { return cmp.Compare(a.Priority, b.Priority) })
	return file.Supplier, nil
}

var setting = regexp.MustCompile(`^\s*([a-z_]+)\s*=`)

// tomlError returns an error that names the line and the setting. It quotes no
// value, which may be a secret written into the file by mistake.
func tomlError(text []byte, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		row, _ := strict.Errors[0].Position()
		return fmt.Errorf("line %d: there is no setting %q", row, strings.Join(strict.Errors[0].Key(), "."))
	}
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		row, column := syntax.Position()
		if line := strings.Split(string(text), "\n")[row-1]; setting.MatchString(line) {
			return fmt.Errorf("line %d, column %d: the value of %s is not TOML, or not of its type", row, column,
				setting.FindStringSubmatch(line)[1])
		}
		return fmt.Errorf("line %d, column %d: is not TOML", row, column)
	}
	return errors.New("is not TOML: a setting may be there twice")
}

func (e *SupplierEntry) check() error {
	kinds := supplierKinds()
	kind, known := kinds[e.Kind]
	switch {
	case !validSupplierName(e.Name):
		return errors.New(
			"name must be 1 to 32 lower-case letters, digits and hyphens, and begin with a letter; it is stored with every card and can't be changed")
	case !known:
		return fmt.Errorf("there is no kind %q; choose one of: %s", e.Kind,
			strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	case e.AtOnce < 0 || e.AtOnce > 256:
		return errors.New("at_once must be between 1 and 256")
	case !(e.PerSecond >= 0 && e.PerSecond <= maxPerSecond): // nor not a number
		return fmt.Errorf("requests_per_second must be between 0, for no limit, and %d", maxPerSecond)
	}
	for name, other := range kinds {
		if name == e.Kind {
			continue
		}
		for field, set := range other.own(*e) {
			if _, also := kind.own(*e)[field]; set && !also {
				return fmt.Errorf("%s is a setting of kind %q, not of %q", field, name, e.Kind)
			}
		}
	}
	if e.MinValidity != "" {
		var err error
		if e.MinDuration, err = time.ParseDuration(e.MinValidity); err != nil || e.MinDuration < 0 {
			return errors.New("min_validity must be a duration of 0 or more, as a text: min_validity = \"720h\"")
		}
	}
	if e.LowStock < 0 {
		return errors.New("low_stock must not be negative")
	}
	return e.checkAmounts()
}

func (e *SupplierEntry) checkAmounts() error {
	e.Min, e.Max = card.MinUSD, card.MaxUSD
	for _, bound := range []struct {
		field, text string
		to          *card.USD
	}{{"min_usd", e.MinUSD, &e.Min}, {"max_usd", e.MaxUSD, &e.Max}} {
		if bound.text == "" {
			continue
		}
		usd, err := card.ParseUSD(bound.text)
		if err != nil || usd < card.MinUSD || usd > card.MaxUSD {
			return fmt.Errorf("%s must be between %s and %s US dollars, as a text: %s = \"%s\"", bound.field, card.MinUSD,
				card.MaxUSD, bound.field, card.MinUSD)
		}
		*bound.to = usd
	}
	if e.Min > e.Max {
		return errors.New("min_usd is more than max_usd")
	}
	return nil
}

func validSupplierName(name string) bool {
	if name == "" || len(name) > 32 || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// Open opens the suppliers without sending requests.
func (s Suppliers) Open(opts SupplierOptions) ([]Supplier, issue.Routes, error) {
	var opened []Supplier
	var routes issue.Routes
	for _, e := range s.Entries {
		m, err := supplierKinds()[e.Kind].open(e, opts)
		if err != nil {
			return nil, nil, WithHint(fmt.Errorf("supplier %q: %w", e.Name, err),
				"docs/suppliers.md describes the settings of kind %s", e.Kind)
		}
		opened = append(opened, m)
		routes = append(routes,
			issue.Route{Supplier: m, Min: e.Min, Max: e.Max, Concurrency: e.AtOnce, PerSecond: e.PerSecond})
	}
	return opened, routes, nil
}

// secret reads a file with one secret. Only its owner may have access to the
// file. Errors do not quote the secret.
func (e SupplierEntry) secret(field, path string) (card.Secret, error) {
	if path == "" {
		return "", fmt.Errorf("%s is missing: it names a file with the secret", field)
	}
	path = e.path(path)
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s: %s can be read by others than its owner: chmod 600 %s", field, path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s: %s is empty", field, path)
	}
	return card.Secret(secret), nil
}
