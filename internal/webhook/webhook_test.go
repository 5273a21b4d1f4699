package webhook_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/webhook"
)

// scripted is a Poster that allows any address and returns the test's attempts.
type scripted struct {
	post func(url string, secrets []card.Secret, e card.Event) webhook.Attempt
}

func (scripted) CheckURL(string) error { return nil }

func (s scripted) Post(_ context.Context, url string, secrets []card.Secret, e card.Event) webhook.Attempt {
	return s.post(url, secrets, e)
}

// lockedVault can neither encrypt nor decrypt.
type lockedVault struct{}

var errLocked = errors.New("locked")

func (lockedVault) Seal(uuid.UUID, uuid.UUID, string, card.Secret) ([]byte, error) {
	return nil, errLocked
}
func (lockedVault) Open(uuid.UUID, uuid.UUID, string, []byte) (card.Secret, error) {
	return "", errLocked
}

// service returns another service of the fixture.
func (s *fixture) service(v webhook.Vault, p webhook.Poster, wake func()) *webhook.Service {
	s.t.Helper()
	made, err := webhook.New(unreliable{s.store, s}, v, p, wake, s.cfg)
	check(s.t, err)
	return made
}

func onSQLite(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, databases.SQLite(t))
}

// wantSaying checks the message of a public error.
func wantSaying(t testing.TB, err error, text string) {
	t.Helper()
	var public *card.Error
	if !errors.As(err, &public) || !strings.Contains(public.Message, text) {
		t.Errorf("error %v, want message %q", err, text)
	}
}

// wantField checks that a public error has exactly this field.
func wantField(t testing.TB, err error, pointer, detail string) {
	t.Helper()
	var public *card.Error
	if !errors.As(err, &public) || len(public.Fields) != 1 || public.Fields[0].Pointer != pointer ||
		!strings.Contains(public.Fields[0].Detail, detail) {
		t.Errorf("error %v, want only %q at %s", err, detail, pointer)
	}
}

func TestNew_InvalidConfig_IsAnError(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	const week = 7 * 24 * time.Hour
	for name, cfg := range map[string]webhook.Config{
		"deliveries kept for less than a week": {Retention: week - 1},
		"negative retention":                   {Retention: -week},
		"negative rate":                        {Rate: -1},
		"negative concurrency":                 {Concurrency: -1},
	} {
		if _, err := webhook.New(s.store, s.vault, nil, func() {}, cfg); err == nil {
			t.Errorf("%s: New returned a service", name)
		}
		if _, err := webhook.NewSender(s.store, s.vault, nil, func() {}, nil, cfg); err == nil {
			t.Errorf("%s: NewSender returned a sender", name)
		}
	}
	cfg := webhook.Config{Retention: week, Rate: 1, Concurrency: 1, Now: s.clock}
	if err := cfg.Validate(); err != nil || cfg.Retention != week || cfg.Rate != 1 || cfg.Concurrency != 1 ||
		!cfg.Now().Equal(s.now) {
		t.Errorf("set fields changed: %+v, error %v", cfg, err)
	}
	var unset webhook.Config
	if err := unset.Validate(); err != nil || unset.Retention != 30*24*time.Hour || unset.Rate != 200 ||
		unset.Concurrency != 512 || unset.Now == nil {
		t.Errorf("defaults %+v, error %v", unset, err)
	}
}

func TestCreateWebhook_StoresSealedSecret(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		url, description, types := "https://shop.example.com/hooks", "of the fixture",
			[]card.EventType{card.EventLate, card.EventExpired}
		w, secret, err := s.webhooks.CreateWebhook(t.Context(), s.account,
			webhook.Request{URL: &url, Description: &description, Types: &types})
		check(t, err)
		want := &webhook.Webhook{ID: w.ID, AccountID: s.account, URL: url, Description: description, Types: types,
			Enabled: true, CreatedAt: card.TimeOf(w.ID),
			Version: w.Version, Sealed: w.Sealed}
		if diff := cmp.Diff(want, w); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want, s.webhook(w.ID)); diff != "" {
			t.Error(diff)
		}
		text, is := strings.CutPrefix(secret.Reveal(), "whsec_")
		if raw, err := base64.StdEncoding.DecodeString(text); !is || err != nil || len(raw) != 32 ||
			strings.Contains(string(w.Sealed), text) {
			t.Errorf("secret %s, sealed %q", secret.Reveal(), w.Sealed)
		}
		if opened, err := s.vault.Open(w.ID, s.account, "webhook_secret", w.Sealed); err != nil ||
			opened.Reveal() != secret.Reveal() {
			t.Errorf("opened %s, error %v", opened.Reveal(), err)
		}
		if _, again := s.createWebhook(url); again.Reveal() == secret.Reveal() {
			t.Error("two webhooks have the same secret")
		}
		off := false
		w, _, err = s.webhooks.CreateWebhook(t.Context(), s.account, webhook.Request{URL: &url, Enabled: &off})
		check(t, err)
		if w.Enabled || w.DisabledReason != webhook.DisabledByRequest || !w.DisabledAt.Equal(s.now) {
			t.Errorf("disabled: %+v", w)
		}
	})
}

func TestWebhook_ForbiddenURL_IsRejected(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		for _, url := range []string{"http://shop.example.com/", "https://127.0.0.1/", "nonsense"} {
			if wrong := x.CheckWebhook(url); len(wrong) != 1 || wrong[0].Pointer != "/url" ||
				!strings.HasPrefix(wrong[0].Detail, "must ") {
				t.Errorf("%s: %+v", url, wrong)
			}
			_, _, err := x.CreateWebhook(t.Context(), x.card.AccountID, webhook.Request{URL: &url})
			wantError(t, err, card.ErrInvalidRequest)
			wantField(t, err, "/url", "must ")
			_, err = x.UpdateWebhook(t.Context(), x.card.AccountID, x.hook.ID, webhook.Request{URL: &url, Enabled: ptr(false)})
			wantError(t, err, card.ErrInvalidRequest)
		}
		if wrong := x.CheckWebhook("https://shop.example.com/hooks"); wrong != nil {
			t.Errorf("%+v", wrong)
		}
		if all, err := x.ListWebhooks(t.Context(), x.card.AccountID); err != nil || len(all) != 2 ||
			x.read(t).URL != x.hook.URL || !x.read(t).Enabled {
			t.Errorf("%d webhooks, %+v, error %v", len(all), x.read(t), err)
		}
	})
}

// If a version were used twice, a sender could store a state that belongs to an
// old URL or secret.
func TestUpdateWebhook_VersionIncreases(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		c := x.claimAfterFailure(t)
		check(t, s.ReleaseWebhook(t.Context(), c))
		rotate := func() {
			_, _, err := x.RotateWebhookSecret(t.Context(), x.card.AccountID, x.hook.ID)
			check(t, err)
		}
		for _, tt := range []struct {
			name    string
			change  func()
			by      int64
			failing bool
		}{
			{"description", func() { x.change(t, webhook.Request{Description: ptr("d")}) }, 0, true},
			{"the same address", func() { x.change(t, webhook.Request{URL: &x.hook.URL}) }, 0, true},
			{"still enabled", func() { x.change(t, webhook.Request{Enabled: ptr(true)}) }, 0, true},
			{"another secret", rotate, 1, true},
			{"another address", func() { x.change(t, webhook.Request{URL: ptr("https://other.example.com/")}) }, 1, false},
			{"disabled", func() { x.change(t, webhook.Request{Enabled: ptr(false)}) }, 1, false},
			{"another secret again", rotate, 1, false},
			{"still disabled", func() { x.change(t, webhook.Request{Enabled: ptr(false)}) }, 0, false},
			{"enabled", func() { x.change(t, webhook.Request{Enabled: ptr(true)}) }, 1, false},
		} {
			before := x.read(t)
			tt.change()
			after := x.read(t)
			if after.Version-before.Version != tt.by || (after.FailingSince != nil) != tt.failing {
				t.Errorf("%s: version %d became %d, want %d more; failing since %v", tt.name, before.Version, after.Version, tt.by,
					after.FailingSince)
			}
			if disabled := after.DisabledReason == webhook.DisabledByRequest &&
				after.DisabledAt != nil; disabled == after.Enabled {
				t.Errorf("%s: %+v", tt.name, after)
			}
		}
	})
}

// claimAfterFailure returns a claim of the webhook under test after one
// failure.
func (x *sending) claimAfterFailure(t testing.TB) *webhook.Claim {
	t.Helper()
	x.insertEvents(t, 1)
	c := x.claim(t)
	x.save(t, c, x.attempted(t, c, 500))
	return c
}

// Deliveries that become due wake the sender, so that they are sent
// immediately.
func TestService_DeliveriesDue_WakesSender(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	wakes := 0
	service := s.service(s.vault, scripted{}, func() { wakes++ })
	w, _ := s.createWebhook("https://shop.example.com/hooks")
	e := s.insertEvents(1)[0]
	for name, f := range map[string]func() error{
		"enabled": func() error {
			_, err := service.UpdateWebhook(t.Context(), s.account, w.ID, webhook.Request{})
			return err
		},
		"sent":      func() error { return service.Redeliver(t.Context(), s.account, w.ID, e.ID) },
		"recovered": func() error { _, err := service.RecoverWebhook(t.Context(), s.account, w.ID, time.Time{}); return err },
	} {
		before := wakes
		check(t, f())
		if wakes != before+1 {
			t.Errorf("%s: woke the sender %d times", name, wakes-before)
		}
	}
}

func TestService_NoPoster_RejectsCreateAndTest(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	w, _ := s.createWebhook("https://shop.example.com/hooks")
	service := s.service(s.vault, nil, func() {})
	url := "nonsense"
	if wrong := service.CheckWebhook(url); wrong != nil {
		t.Errorf("%+v", wrong)
	}
	_, _, err := service.CreateWebhook(t.Context(), s.account, webhook.Request{URL: &url})
	wantError(t, err, card.ErrUnavailable)
	_, err = service.TestWebhook(t.Context(), s.account, w.ID, card.EventLate)
	wantError(t, err, card.ErrUnavailable)
	if all, err := service.ListWebhooks(t.Context(), s.account); err != nil || len(all) != 1 {
		t.Errorf("%d webhooks, error %v", len(all), err)
	}
}

func TestService_VaultFails_ChangesNothing(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	w, _ := s.createWebhook("https://shop.example.com/hooks")
	before := s.webhook(w.ID)
	locked := s.service(lockedVault{}, scripted{}, func() {})
	_, secret, err := locked.CreateWebhook(t.Context(), s.account, webhook.Request{URL: &w.URL})
	if wantError(t, err, errLocked); secret != "" {
		t.Error("returned a secret that was not sealed")
	}
	_, secret, err = locked.RotateWebhookSecret(t.Context(), s.account, w.ID)
	if wantError(t, err, errLocked); secret != "" {
		t.Error("returned a secret that was not sealed")
	}
	_, err = locked.TestWebhook(t.Context(), s.account, w.ID, card.EventLate)
	wantError(t, err, errLocked)
	all, err := s.webhooks.ListWebhooks(t.Context(), s.account)
	check(t, err)
	if diff := cmp.Diff([]*webhook.Webhook{before}, all); diff != "" {
		t.Error(diff)
	}
}

func TestService_StoreFails_ReturnsError(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	w, _ := s.createWebhook("https://shop.example.com/hooks")
	e := s.insertEvents(1)[0]
	ctx := t.Context()
	operations := map[string]func() error{
		"create": func() error {
			_, _, err := s.webhooks.CreateWebhook(ctx, s.account, webhook.Request{URL: &w.URL})
			return err
		},
		"get":    func() error { _, err := s.webhooks.GetWebhook(ctx, s.account, w.ID); return err },
		"update": func() error { _, err := s.webhooks.UpdateWebhook(ctx, s.account, w.ID, webhook.Request{}); return err },
		"rotate": func() error { _, _, err := s.webhooks.RotateWebhookSecret(ctx, s.account, w.ID); return err },
		"test":   func() error { _, err := s.webhooks.TestWebhook(ctx, s.account, w.ID, card.EventLate); return err },
		"list deliveries": func() error {
			_, _, err := s.webhooks.ListDeliveries(ctx, s.account, w.ID, webhook.DeliveryFilter{Limit: 1})
			return err
		},
		"redeliver": func() error { return s.webhooks.Redeliver(ctx, s.account, w.ID, e.ID) },
		"recover":   func() error { _, err := s.webhooks.RecoverWebhook(ctx, s.account, w.ID, time.Time{}); return err },
		"list events": func() error {
			_, _, err := s.webhooks.ListEvents(ctx, s.account, webhook.EventFilter{After: 1, Limit: 1})
			return err
		},
		"prune":  func() error { return s.sender.Prune(ctx) },
		"delete": func() error { return s.webhooks.DeleteWebhook(ctx, s.account, w.ID) },
	}
	for _, tt := range []struct{ operation, method string }{
		{"create", "WebhookTx"}, {"get", "WebhookByID"}, {"update", "WebhookTx"}, {"rotate", "WebhookTx"},
		{"test", "WebhookByID"},
		{"list deliveries", "WebhookByID"}, {"list deliveries", "Deliveries"}, {"redeliver", "WebhookTx"},
		{"recover", "WebhookByID"}, {"recover", "SeqBefore"}, {"recover", "WebhookTx"}, {"list events", "Events"},
		{"list events", "LastSeq"},
		{"prune", "PruneDeliveries"}, {"prune", "PruneReplies"}, {"delete", "WebhookTx"}, {"delete", "DeleteDeliveries"},
	} {
		s.fails = tt.method
		if err := operations[tt.operation](); !errors.Is(err, card.ErrUnavailable) {
			t.Errorf("%s when %s fails: %v", tt.operation, tt.method, err)
		}
	}
	// A reader at the start of the feed can't be ahead of it, so the end is not
	// queried.
	s.fails = "LastSeq"
	if es, more, err := s.webhooks.ListEvents(ctx, newAccount(t, s.store), webhook.EventFilter{Limit: 1}); err != nil ||
		len(es) != 0 || more {
		t.Errorf("%d events, error %v", len(es), err)
	}
	// A deletion that failed halfway leaves the webhook disabled, and can be
	// repeated.
	s.fails = ""
	if now := s.webhook(w.ID); now.Enabled {
		t.Errorf("%+v", now)
	}
	check(t, operations["delete"]())
	wantError(t, operations["get"](), card.ErrNotFound)
}

func TestWebhook_OtherAccount_IsNotFound(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *store.Store) {
		x := newSending(t, s)
		ctx, other, id := t.Context(), newAccount(t, s), x.hook.ID
		before := x.read(t)
		for name, f := range map[string]func() error{
			"get": func() error { _, err := x.GetWebhook(ctx, other, id); return err },
			"update": func() error {
				_, err := x.UpdateWebhook(ctx, other, id, webhook.Request{Enabled: ptr(false)})
				return err
			},
			"rotate": func() error { _, _, err := x.RotateWebhookSecret(ctx, other, id); return err },
			"delete": func() error { return x.DeleteWebhook(ctx, other, id) },
			"test":   func() error { _, err := x.TestWebhook(ctx, other, id, card.EventLate); return err },
		} {
			err := f()
			if !errors.Is(err, card.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
			wantSaying(t, err, "no webhook with this id")
		}
		if diff := cmp.Diff(before, x.read(t)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTestWebhook_SignsWithBothSecrets(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	w, first := s.createWebhook("https://shop.example.com/hooks", card.EventLate)
	_, second, err := s.webhooks.RotateWebhookSecret(t.Context(), s.account, w.ID)
	check(t, err)
	off := false
	// an example can be sent to a disabled webhook
	_, err = s.webhooks.UpdateWebhook(t.Context(), s.account, w.ID, webhook.Request{Enabled: &off})
	check(t, err)
	want := webhook.Attempt{At: epoch, Status: 418, Answer: "a teapot"}
	var sent []card.Event
	service := s.service(s.vault, scripted{func(url string, secrets []card.Secret, e card.Event) webhook.Attempt {
		if url != w.URL || len(secrets) != 2 || secrets[0].Reveal() != second.Reveal() ||
			secrets[1].Reveal() != first.Reveal() {
			t.Errorf("sent to %s, signed with %d secrets", url, len(secrets))
		}
		sent = append(sent, e)
		return want
	}}, func() {})
	for range 2 {
		got, err := service.TestWebhook(t.Context(), s.account, w.ID, card.EventGenerated)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s, error %v", diff, err)
		}
	}
	if e := sent[0]; e.Type != card.EventGenerated || e.AccountID != s.account || e.CardUUID == uuid.Nil ||
		e.CardUUID == s.card.UUID || e.ID == sent[1].ID {
		t.Errorf("sent %+v", sent)
	}
	if es, _, err := s.webhooks.ListEvents(t.Context(), s.account, webhook.EventFilter{Limit: 9}); err != nil ||
		len(es) != 0 {
		t.Errorf("%d events are stored, error %v", len(es), err)
	}
}

// The limit keeps an account from flooding another server with examples.
func TestTestWebhook_AccountLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := onSQLite(t)
		w, _ := s.createWebhook("https://shop.example.com/hooks")
		other := insertWebhook(t, s.store, newWebhook(newAccount(t, s.store)))
		answers := make(chan webhook.Attempt)
		service := s.service(openVault{},
			scripted{func(string, []card.Secret, card.Event) webhook.Attempt { return <-answers }}, func() {})
		ended := make(chan error)
		begin := func(w *webhook.Webhook) {
			go func() {
				_, err := service.TestWebhook(t.Context(), w.AccountID, w.ID, card.EventLate)
				ended <- err
			}()
			synctest.Wait()
		}
		refused := func() {
			t.Helper()
			_, err := service.TestWebhook(t.Context(), s.account, w.ID, card.EventLate)
			wantError(t, err, card.ErrUnavailable)
			wantSaying(t, err, "Other examples")
		}
		for range 3 { // in every round
			begin(w)
			begin(w)
			refused()
			begin(other)
			answers <- webhook.Attempt{} // to the first
			check(t, <-ended)
			begin(w)
			refused()
			for range 2 {
				answers <- webhook.Attempt{}
				check(t, <-ended)
			}
			answers <- webhook.Attempt{}
			check(t, <-ended)
		}
	})
}
