// Package clienttest runs the service inside a test of a program that uses it:
// the real handlers and rules, on a simulated chain, with a clock that the test
// controls and sandbox cards.
//
//	func TestCheckout(t *testing.T) {
//		service := clienttest.Start(t)
//		shop := NewShop(service.Client())
//		order := shop.Checkout(...)
//		service.Pay(order.CardUUID)
//		...
//	}
//
// It imports the service, and is therefore a separate module: a module that
// imports it also requires the service's dependencies. To keep those out of
// your program's module, put the tests into a separate module that requires
// both.
//
// It wires the service like package app, and may import what app may. Nothing
// outlives the test.
package clienttest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/chain/simulated"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/outbound"
	"github.com/cardmint/cardmint/internal/rate"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/vault"
	"github.com/cardmint/cardmint/internal/webhook"
	"github.com/cardmint/cardmint/server"
)

// Rate is the exchange rate of each coin, in US dollars.
const Rate = "150"

const (
	workEvery     = 100 * time.Millisecond
	pool          = 200 // addresses kept ahead
	senderTimeout = 15 * time.Second
)

// Service is a running service with one account. Its methods call t.Fatal on
// failure, so they must be called from the test's goroutine.
type Service struct {
	URL   string // the base URL
	Token string // an API token of the account

	t     testing.TB
	ahead atomic.Int64 // of real time, in nanoseconds
	mu    sync.Mutex   // held while the service works
	ticks []func(context.Context) error
}

// Start starts a service that stops at the end of the test. It sells cards for
// every coin, at [Rate]. Everything that a payment, a request or the clock
// makes due happens before the method that caused it returns.
func Start(t testing.TB) *Service {
	t.Helper()
	s := &Service{t: t}
	dir := t.TempDir()
	keyFile, database := filepath.Join(dir, "keys.json"), "sqlite:"+filepath.Join(dir, "cardmint.db")
	s.need(vault.Create(keyFile))
	keys, err := vault.Open(keyFile)
	s.need(err)
	_, err = store.Migrate(context.Background(), database)
	s.need(err)
	db, err := store.Open(context.Background(), database, 8, chain.Currencies())
	s.need(err)
	t.Cleanup(func() { _ = db.Close() })

	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	config := server.Config{Log: log}
	config.Accounts, err = account.New(db, keys, account.Config{Now: s.Now})
	s.need(err)
	s.need(config.Accounts.CheckKeys(context.Background()))
	s.wire(db, keys, &config, log)
	s.work()
	s.Token = s.token(config.Accounts)
	handler, err := server.New(config)
	s.need(err)
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	s.URL = web.URL
	s.keepWorking()
	return s
}

// wire creates the actors and connects them.
func (s *Service) wire(db *store.Store, keys *vault.Vault, config *server.Config, log *slog.Logger) {
	coins, worth := chain.Currencies(), map[string]string{}
	for _, coin := range coins {
		worth[coin.Code] = Rate
	}
	rates, err := rate.NewFixed(worth, s.Now)
	s.need(err)
	sandbox := map[string]order.Sandbox{}
	for _, coin := range coins {
		sim := simulated.New(coin, db, s.Now)
		sandbox[coin.Code] = sim
		watcher, err := settle.New(db, rates, sim,
			settle.Wake{Pass: func() {}, Orders: func() {}, Issuer: func() {}, Sender: func() {}}, log,
			settle.Config{PoolSize: pool, FillBatch: pool, LeaseTTL: time.Minute, Now: s.Now})
		s.need(err)
		s.t.Cleanup(func() { _ = watcher.Close(context.Background()) })
		s.ticks = append(s.ticks, watcher.Tick)
	}
	routes := issue.Only(supplier.NewSandbox("sandbox", supplier.Prompt, s.Now))
	issuer, err := issue.New(db, keys, issue.Wake{}, log, issue.Config{Routes: routes, Now: s.Now})
	s.need(err)
	offers, err := issue.NewOffers(db, routes, 0)
	s.need(err)
	checks := map[string]func(address, ours string) error{}
	for _, coin := range chain.Coins() {
		checks[coin.Code] = simulated.CheckAddress(coin.CheckAddress)
	}
	config.Orders, err = order.New(db, keys, rates, sandbox, s.work,
		order.Config{Currencies: coins, CheckAddress: checks, Now: s.Now})
	s.need(err)
	poster := webhook.NewHTTPPoster(outbound.Guard{Insecure: true, Timeout: senderTimeout})
	poster.Unlimited = true
	s.t.Cleanup(poster.Close)
	webhooks := webhook.Config{Now: s.Now}
	sender, err := webhook.NewSender(db, keys, poster, func() {}, log, webhooks)
	s.need(err)
	s.t.Cleanup(func() { _ = sender.Close(context.Background()) })
	config.Webhooks, err = webhook.New(db, keys, poster, func() {}, webhooks)
	s.need(err)
	s.ticks = append(s.ticks, issuer.Tick, offers.Tick, config.Orders.RefreshOffers, sender.Tick)
}

// token returns a token of a new account.
func (s *Service) token(accounts *account.Service) string {
	_, err := accounts.CreateAccount(context.Background(), "test")
	s.need(err)
	_, token, err := accounts.CreateToken(context.Background(), "test",
		account.TokenRequest{Name: "test", Scopes: account.AllScopes})
	s.need(err)
	return token.Reveal()
}

// work processes everything that is due.
func (s *Service) work() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tick := range s.ticks {
		if err := tick(context.Background()); err != nil {
			fmt.Fprintf(s.t.Output(), "clienttest: %v\n", err)
		}
	}
}

// keepWorking calls work until the test ends.
func (s *Service) keepWorking() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(workEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.work()
			case <-ctx.Done():
				return
			}
		}
	}()
	s.t.Cleanup(func() {
		stop()
		<-ended
	})
}

// Client returns a client of the account. It polls more often than by default,
// unless the options set another interval.
func (s *Service) Client(opts ...client.Option) *client.Client {
	s.t.Helper()
	c, err := client.New(s.URL, s.Token,
		append([]client.Option{client.WithPollInterval(5*time.Millisecond, 50*time.Millisecond)}, opts...)...)
	s.need(err)
	return c
}

// Now returns the service's time.
func (s *Service) Now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// Advance moves the service's clock ahead. Everything due by then has happened
// when it returns: after two hours, for example, quotes have expired. Only
// webhook deliveries may take slightly longer.
func (s *Service) Advance(d time.Duration) {
	s.t.Helper()
	if d < 0 {
		s.t.Fatal("clienttest: the clock can't go back")
	}
	s.ahead.Add(int64(d))
	s.work()
}

// Pay pays the amount due for a card, confirms the payment, and returns the
// card, which is generated unless the payment is late. Use
// [client.Client.SimulatePayment] to pay too little, too much, or without
// confirmations.
func (s *Service) Pay(id uuid.UUID) *client.Card {
	s.t.Helper()
	paid, err := s.Client().SimulatePayment(context.Background(), id, client.SimulatePaymentRequest{})
	s.need(err)
	return paid
}

func (s *Service) need(err error) {
	if err != nil {
		s.t.Helper()
		s.t.Fatalf("clienttest: %v", err)
	}
}
