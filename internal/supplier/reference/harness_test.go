package reference_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/operator"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/rig/storetest"
	"github.com/cardmint/cardmint/internal/rig/vaulttest"
	"github.com/cardmint/cardmint/internal/settle"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/supplier/reference"
	"github.com/cardmint/cardmint/internal/vault"
)

func TestMain(m *testing.M) { rig.Main(m) }

const secret = card.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

// logBuffer is a concurrency-safe log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// clock is the clock of the reference server and the adapter.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is a reference server with an adapter.
type fixture struct {
	t      *testing.T
	server *reference.Server
	http   *supplier.HTTP
	clock  *clock
	log    *logBuffer
	file   string
	url    string
}

func newFixture(t *testing.T, change ...func(*reference.Config)) *fixture {
	t.Helper()
	secrets, err := supplier.ParseSecrets(secret)
	check(t, err)
	s := &fixture{t: t, clock: &clock{now: time.Now().Truncate(time.Millisecond)}, log: &logBuffer{},
		file: filepath.Join(t.TempDir(), "supplier.db")}
	cfg := reference.Config{File: s.file, Secrets: secrets, Now: s.clock.Now,
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Slowness: time.Second}
	for _, f := range change {
		f(&cfg)
	}
	s.server, err = reference.Open(cfg)
	check(t, err)
	t.Cleanup(func() { _ = s.server.Close() })
	listener := httptest.NewServer(checked(t, s.server))
	t.Cleanup(listener.Close)
	s.url = listener.URL
	s.http, err = supplier.NewHTTP(
		supplier.HTTPConfig{Name: "acme", URL: s.url, Secret: secret, Mode: card.TestMode, Insecure: true, Now: s.clock.Now})
	check(t, err)
	t.Cleanup(s.http.Close)
	return s
}

// behave sets the rules.
func (s *fixture) behave(texts ...string) {
	s.t.Helper()
	var rules []reference.Rule
	for _, text := range texts {
		rule, err := reference.ParseRule(text)
		check(s.t, err)
		rules = append(rules, rule)
	}
	s.server.Behave(rules...)
}

// ledger returns the ledger's entries for a key, or all if it is "".
func (s *fixture) ledger(key string) (what []string) {
	s.t.Helper()
	all, err := s.server.Ledger(context.Background())
	check(s.t, err)
	for _, e := range all {
		if key == "" || strings.HasPrefix(e.Key, key) {
			what = append(what, e.What)
		}
	}
	return what
}

// wantLedger compares the ledger's entries for a key.
func (s *fixture) wantLedger(key string, want ...string) {
	s.t.Helper()
	if got := s.ledger(key); !slices.Equal(got, want) {
		s.t.Errorf("ledger %q, want %q", got, want)
	}
}

// process issues cards from the reference server.
type process struct {
	*fixture
	db      *store.Store
	url     string
	vault   *vault.Vault
	issuer  *issue.Issuer
	account uuid.UUID
}

// onEach runs a test on every database. At the end it checks that no key has
// two cards, and no log contains a number.
func onEach(t *testing.T, f func(t *testing.T, r *process), change ...func(*reference.Config)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, url string) {
		db, v := storetest.Open(t, url), vaulttest.New(t)
		r := &process{fixture: newFixture(t, change...), db: db, url: url, vault: v}
		var err error
		r.issuer, err = issue.New(db, v, issue.Wake{}, slog.New(slog.NewTextHandler(r.log, nil)),
			issue.Config{Routes: issue.Only(r.http), Now: r.clock.Now})
		check(t, err)
		a := account.Account{ID: uuid.Must(uuid.NewV7()), Name: "shop", CreatedAt: r.clock.Now()}
		check(t, db.InsertAccount(t.Context(), a))
		r.account = a.ID
		f(t, r)
		r.audit()
	})
}

// paid returns a card whose payment is confirmed.
func (r *process) paid() *card.Card {
	r.t.Helper()
	c := &card.Card{UUID: uuid.Must(uuid.NewV7()), AccountID: r.account, CreatedAt: r.clock.Now(), USD: 150_50,
		Coin: chain.Currencies()[0], Amount: 1e12,
		Address: uuid.NewString(),
		Rate: card.Rate{USD: card.Decimal{Units: 150_00000000, Scale: card.RateScale}, At: r.clock.Now(),
			Source: "fixed"},
		ExpiresAt: r.clock.Now().Add(time.Hour), ConfirmationsRequired: 10}
	_, err := r.db.InsertCard(r.t.Context(), c, 0)
	check(r.t, err)
	check(r.t, r.db.SettleTx(r.t.Context(), func(tx settle.Tx) error {
		a := card.Assessment{State: card.Paid, Received: c.Amount, Settled: c.Amount}
		return tx.SaveVerdicts(r.t.Context(), []card.Verdict{{Card: c, Assessment: a, Issue: true}})
	}))
	return c
}

// issue makes all waiting intents due, and issues their cards.
func (r *process) issue() {
	r.t.Helper()
	_, err := rig.OpenSQL(r.t, r.url).Exec("UPDATE intents SET due_at = 0")
	check(r.t, err)
	_, err = r.issuer.IssueDue(r.t.Context())
	check(r.t, err)
}

// backdate moves the first requests into the past, by the database's clock.
func (r *process) backdate(by time.Duration) {
	r.t.Helper()
	_, err := rig.OpenSQL(r.t,
		r.url).Exec(fmt.Sprintf("UPDATE intents SET first_asked_at = first_asked_at - %d", by.Milliseconds()))
	check(r.t, err)
}

// want checks an intent's state and last answer.
func (r *process) want(c *card.Card, state issue.State, answer string) operator.IntentRecord {
	r.t.Helper()
	record, err := r.db.CardDetail(r.t.Context(), c.UUID)
	check(r.t, err)
	i := *record.Intent
	if i.State != string(state) || i.Answer != answer || record.Credentials != (state == issue.StateDone) {
		r.t.Errorf("issuing is %s, last answer %q, %q, credentials %t; want %s, %q", i.State, i.Answer, i.Reason,
			record.Credentials, state, answer)
	}
	return i
}

// wantCard compares the stored card with the issued one.
func (r *process) wantCard(c *card.Card) {
	r.t.Helper()
	r.want(c, issue.StateDone, "issued")
	stored, err := r.db.CardByUUID(r.t.Context(), c.AccountID, c.UUID)
	check(r.t, err)
	if stored.Sealed == nil {
		r.t.Fatal("no credentials are stored")
	}
	got, err := r.vault.OpenCredentials(c.UUID, c.AccountID, *stored.Sealed)
	check(r.t, err)
	if got != supplier.SandboxCard(c.UUID.String(), r.clock.Now()) {
		r.t.Error("the stored card is not the issued one")
	}
}

func (r *process) audit() {
	r.t.Helper()
	all, err := r.server.Ledger(context.Background())
	check(r.t, err)
	made := map[string]int{}
	for _, e := range all {
		if e.What == reference.Made {
			if made[e.Key]++; made[e.Key] > 1 {
				r.t.Errorf("%d cards were issued for %s", made[e.Key], e.Key)
			}
		}
		for serial := range 2 {
			key := e.Key + strings.Repeat("#1", serial)
			if strings.Contains(r.log.text(), supplier.SandboxCard(key, r.clock.Now()).CardNumber.Reveal()) {
				r.t.Errorf("the number of %s is in a log", key)
			}
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
