package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/webhook"
	"github.com/cardmint/cardmint/server"
)

// testRate makes prices that need rounding.
const testRate = "152.52"

func TestMain(m *testing.M) {
	// Each test reads the log of its server; the rest of the service would only
	// be noise.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	rig.Main(m)
}

// setup configures a deployment. The zero value is a sandbox on SQLite.
type setup struct {
	database   string                    // Defaults to a new SQLite file.
	keys       string                    // Defaults to a new key file.
	clock      *clock                    // Defaults to real time.
	rates      order.Rates               // Defaults to monero at testRate.
	mode       string                    // Defaults to the test mode.
	sandbox    map[string]order.Sandbox  // Defaults to the simulated chain.
	wrap       func(*store.Store) hooked // wraps the store. Defaults to none.
	checks     map[string]func(context.Context) error
	noService  bool // only health is served
	origins    []string
	publicURL  string
	docs       http.Handler
	supplies   supplier.Behavior // Defaults to supplier.Prompt.
	pool       int               // free addresses. Defaults to 64.
	limits     func(*order.Config)
	poster     webhook.Poster // Defaults to none: no webhook can be registered.
	wakeSender func()
	requests   *limit.Config // Defaults to limits that no test reaches.
	proxies    []netip.Prefix
	heartbeat  time.Duration
	meter      server.Metrics
}

// deployment is a running service of real parts. It advances only on requests.
type deployment struct {
	setup
	store    *store.Store
	orders   *order.Service
	accounts *account.Service
	webhooks *webhook.Service
	requests *limit.Limiter
	handler  http.Handler
	web      *httptest.Server
	log      *logBuffer
	work     func() // runs one pass, and issues due cards

	seen     int // lines that audited has read
	stopOnce sync.Once
	watcher  *settle.Watcher
}

func deploy(t testing.TB, s setup) *deployment {
	t.Helper()
	dir := t.TempDir()
	if s.database == "" {
		s.database = databases.SQLite(t)
	}
	if s.keys == "" {
		s.keys = filepath.Join(dir, "keys.json")
		need(t, vault.Create(s.keys))
	}
	if s.supplies == "" {
		s.supplies = supplier.Prompt
	}
	if s.pool == 0 {
		s.pool = 64
	}
	if s.clock == nil {
		s.clock = &clock{}
	}
	if s.rates == nil {
		fixed, err := rate.NewFixed(map[string]string{"monero": testRate}, s.clock.now)
		need(t, err)
		s.rates = fixed
	}
	keys, err := vault.Open(s.keys)
	need(t, err)
	ctx := context.Background()
	db, err := store.Open(ctx, s.database, 8, chain.Currencies())
	need(t, err)
	coin := chain.Currencies()[0]
	sim := simulated.New(coin, db, s.clock.now)
	if s.sandbox == nil {
		s.sandbox = map[string]order.Sandbox{coin.Code: sim}
	}
	d := &deployment{setup: s, store: db, log: &logBuffer{}}
	t.Cleanup(d.stop)

	requests := hooked{Store: db}
	if s.wrap != nil {
		requests = s.wrap(db)
	}
	cfg := order.Config{Currencies: []card.Currency{coin}, Now: s.clock.now,
		CheckAddress: map[string]func(address, ours string) error{coin.Code: simulated.CheckAddress(chain.Coins()[0].CheckAddress)}}
	if s.limits != nil {
		s.limits(&cfg)
	}
	d.accounts, err = account.New(requests, keys, account.Config{Mode: s.mode, Now: s.clock.now})
	need(t, err)
	need(t, d.accounts.CheckKeys(ctx))
	quiet := slog.New(slog.DiscardHandler)
	d.watcher, err = settle.New(db, s.rates, sim,
		settle.Wake{Pass: func() {}, Orders: func() {}, Issuer: func() {}, Sender: func() {}}, quiet,
		settle.Config{PoolSize: s.pool, FillBatch: s.pool, LeaseTTL: time.Minute, Now: s.clock.now})
	need(t, err)
	issuing, err := issue.New(db, keys, issue.Wake{}, quiet,
		issue.Config{Routes: issue.Only(supplier.NewSandbox("sandbox", s.supplies, s.clock.now)), Now: s.clock.now})
	need(t, err)
	d.work = func() {
		// Errors show in the card, which is then not paid.
		_ = d.watcher.Tick(ctx)
		_ = issuing.Tick(ctx)
	}
	d.work()
	d.orders, err = order.New(requests, keys, s.rates, s.sandbox, d.work, cfg)
	need(t, err)
	if s.wakeSender == nil {
		s.wakeSender = func() {}
	}
	d.webhooks, err = webhook.New(requests, keys, s.poster, s.wakeSender, webhook.Config{Now: s.clock.now})
	need(t, err)
	if s.requests == nil {
		most := limit.Policy{Quota: 1_000_000, Window: time.Second}
		s.requests = &limit.Config{Token: most, Account: most, Create: most, Address: most}
	}
	counting := *s.requests
	if counting.Process = uuid.NewString(); counting.Now == nil {
		counting.Now = s.clock.now
	}
	d.requests = limit.New(db, counting)
	config := server.Config{Metrics: s.meter, Orders: d.orders, Accounts: d.accounts, Webhooks: d.webhooks,
		Log: slog.New(slog.NewJSONHandler(d.log, nil)), Checks: checksOf(s.checks),
		Limits: d.requests, Proxies: s.proxies, Heartbeat: s.heartbeat,
		Origins: s.origins, PublicURL: s.publicURL, Docs: s.docs}
	if s.noService {
		config.Orders = nil
	}
	d.handler, err = server.New(config)
	need(t, err)
	d.web = httptest.NewServer(d.handler)
	return d
}

// checksOf returns checks of the whole service, by name.
func checksOf(byName map[string]func(context.Context) error) []server.Check {
	var all []server.Check
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, server.Check{Name: name, Run: byName[name]})
	}
	return all
}

var databases = storetest.Databases

// stop shuts the deployment down, so that another one can use its database.
func (d *deployment) stop() {
	d.stopOnce.Do(func() {
		if d.web != nil {
			d.web.Close()
		}
		if d.watcher != nil {
			_ = d.watcher.Close(context.Background())
		}
		_ = d.store.Close()
	})
}

// restart starts a new process on the same database with the same keys.
func (d *deployment) restart(t testing.TB) *deployment {
	t.Helper()
	d.stop()
	s := d.setup
	s.sandbox = nil
	return deploy(t, s)
}

// replica starts another process of the same service. It has observed this
// one's attestation.
func (d *deployment) replica(t testing.TB) *deployment {
	t.Helper()
	s := d.setup
	s.sandbox = nil
	other := deploy(t, s)
	_, err := other.store.PoolState(t.Context(), "monero")
	need(t, err)
	d.clock.advance(time.Second)
	need(t, d.watcher.Mark(t.Context()))
	_, err = other.store.PoolState(t.Context(), "monero")
	need(t, err)
	return other
}

var accounts atomic.Int64

// account creates an account and returns its name.
func (d *deployment) account(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("account %d", accounts.Add(1))
	_, err := d.accounts.CreateAccount(t.Context(), name)
	need(t, err)
	return name
}

// tokenOf creates another token of an account. It expires after ttl, or never
// if ttl is 0.
func (d *deployment) tokenOf(t testing.TB, owner string, ttl time.Duration) (uuid.UUID, string) {
	t.Helper()
	token, text, err := d.accounts.CreateToken(t.Context(), owner,
		account.TokenRequest{Name: "test", Scopes: account.AllScopes, TTL: ttl})
	need(t, err)
	return token.ID, text.Reveal()
}

// token returns a token of a new account.
func (d *deployment) token(t testing.TB) string {
	t.Helper()
	_, token := d.tokenOf(t, d.account(t), 0)
	return token
}

// client returns a client without retries. Each response is validated against
// the contract.
func (d *deployment) client(t testing.TB, token string) *client.Client {
	t.Helper()
	c, err := client.New(d.web.URL, token,
		client.WithHTTPClient(&http.Client{Transport: checked{t, d.web.Client().Transport}}), client.WithRetry(1, 0))
	need(t, err)
	return c
}

// create orders a card of an amount of US dollars.
func (d *deployment) create(t testing.TB, usd string) (*client.Client, *client.Card) {
	t.Helper()
	c := d.client(t, d.token(t))
	made, err := c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number(usd), Currency: "monero"})
	need(t, err)
	return c, made
}

// clock is real time plus an offset.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

func need(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// create orders a card of an amount of US dollars.
func create(ctx context.Context, s *order.Service, account uuid.UUID, usd string) (*card.Card, error) {
	o, wrong := s.Check(order.Request{USDAmount: usd, Currency: "monero"})
	if len(wrong) > 0 {
		return nil, card.ErrInvalidRequest.WithFields(wrong...)
	}
	c, _, err := s.CreateCard(ctx, account, o, "")
	return c, err
}
