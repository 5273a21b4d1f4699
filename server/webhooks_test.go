package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// receiver is a webhook.Poster that records requests instead of sending them.
type receiver struct {
	mu     sync.Mutex
	posts  []post
	answer webhook.Attempt
	hold   chan struct{} // if not nil, responses wait until it is closed
	woken  atomic.Int64  // how often the sender was woken
}

type post struct {
	url     string
	secrets []string
	event   card.Event
}

func (r *receiver) CheckURL(url string) error {
	if !strings.HasPrefix(url, "https://") || strings.Contains(url, "\x00") {
		return errors.New("must begin with https:// and hold no control characters")
	}
	return nil
}

func (r *receiver) Post(_ context.Context, url string, secrets []card.Secret, e card.Event) webhook.Attempt {
	p := post{url: url, event: e}
	for _, s := range secrets {
		p.secrets = append(p.secrets, s.Reveal())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts = append(r.posts, p)
	if r.hold != nil {
		hold := r.hold
		r.mu.Unlock()
		<-hold
		r.mu.Lock()
	}
	return r.answer
}

// last returns the last request.
func (r *receiver) last(t testing.TB) post {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.posts) == 0 {
		t.Fatal("no request was sent")
	}
	return r.posts[len(r.posts)-1]
}

// hooks is a deployment with an account for webhooks.
type hooks struct {
	*deployment
	*receiver
	token   string
	account uuid.UUID
}

func deployHooks(t testing.TB, s setup) *hooks {
	t.Helper()
	r := &receiver{answer: webhook.Attempt{Status: 200}}
	s.poster, s.wakeSender = r, func() { r.woken.Add(1) }
	h := &hooks{deployment: deploy(t, s), receiver: r}
	h.token, h.account = h.owner(t)
	return h
}

const hookURL = `{"url":"https://shop.example.com/hooks"}`

type hookBody struct {
	ID             uuid.UUID
	URL            string
	Description    string
	Types          []string
	Enabled        bool
	DisabledReason *string    `json:"disabled_reason"`
	DisabledAt     *time.Time `json:"disabled_at"`
	FailingSince   *time.Time `json:"failing_since"`
	CreatedAt      time.Time  `json:"created_at"`
}

type webhookWithSecret struct {
	Webhook hookBody
	Secret  string
}

// ask sends a request of the account and expects a status.
func (h *hooks) ask(t testing.TB, status int, method, target, body string) answer {
	t.Helper()
	return h.send(t, method, target, h.token, body).want(t, status)
}

// register creates a webhook and returns its path.
func (h *hooks) register(t testing.TB, body string) (string, webhookWithSecret) {
	t.Helper()
	a := h.ask(t, http.StatusCreated, http.MethodPost, "/api/webhooks", body)
	made := bodyOf[webhookWithSecret](t, a)
	equal(t, "Location", a.header.Get("Location"), "/api/webhooks/"+made.Webhook.ID.String())
	return a.header.Get("Location"), made
}

// settle makes a sender send the due deliveries of a webhook, with these
// responses.
func (h *hooks) settle(t testing.TB, statuses ...int) {
	t.Helper()
	ctx, now := t.Context(), h.clock.now()
	claims, err := h.store.ClaimWebhooks(ctx, now, 9, time.Hour)
	need(t, err)
	if len(claims) != 1 {
		t.Fatalf("%d webhooks can be claimed", len(claims))
	}
	id := claims[0].Webhook.ID
	due, err := h.store.DueDeliveries(ctx, id, now, len(statuses))
	need(t, err)
	state := webhook.State{FailingSince: claims[0].Webhook.FailingSince, PausedUntil: webhook.Immediately()}
	after := make([]webhook.Delivery, len(statuses))
	for i, status := range statuses {
		a := webhook.Attempt{At: now, Took: 84 * time.Millisecond, Status: status, Answer: "an \"answer\" <b>"}
		if status == 0 {
			a.Answer, a.Error = "", "no connection"
		}
		if a.OK() {
			state.FailingSince = nil
		} else if state.FailingSince == nil {
			state.FailingSince = &a.At
		}
		if a.Gone() {
			state.DisabledReason = webhook.DisabledGone
		}
		after[i] = due[i].After(a, now, 0.5)
	}
	need(t, h.store.WebhookTx(ctx, func(tx webhook.Tx) error {
		return errors.Join(tx.SaveWebhookState(ctx, claims[0], state, now, time.Hour), tx.SaveDeliveries(ctx, id, due, after))
	}))
	need(t, h.store.ReleaseWebhook(ctx, claims[0]))
}

// states are the deliveries that a path lists, each as its event's number and
// its state.
func (h *hooks) states(t testing.TB, target string) (all []string) {
	t.Helper()
	h.walk(t, target, h.token, func(a answer) {
		for _, d := range bodyOf[[]struct {
			Event struct{ Seq int64 }
			State string
		}](t, a) {
			all = append(all, fmt.Sprint(d.Event.Seq, " ", d.State))
		}
	})
	return all
}

func TestWebhook_JSON(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database})
		a := h.ask(t, http.StatusCreated, http.MethodPost, "/api/webhooks",
			`{"url":"https://shop.example.com/hooks?a=b&c=%27","description":"the \"shop's\" 🎉 \u0001","types":["payment.late","card.generated"]}`)
		want := `^\{"webhook":(\{"id":"([0-9a-f-]{36})","url":"https://shop\.example\.com/hooks\?a=b&c=%27","description":"the \\"shop's\\" 🎉 \\u0001",` +
			`"types":\["payment\.late","card\.generated"\],"enabled":true,"disabled_reason":null,"disabled_at":null,"failing_since":null,` +
			`"created_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"\}),"secret":"whsec_[A-Za-z0-9+/]{43}="\}\n$`
		found := regexp.MustCompile(want).FindStringSubmatch(strings.ReplaceAll(a.body, `\u0026`, "&"))
		if found == nil {
			t.Fatalf("got %s, want %s", a.body, want)
		}
		read := func(target string) string {
			return strings.ReplaceAll(h.ask(t, http.StatusOK, http.MethodGet, target, "").body, `\u0026`, "&")
		}
		equal(t, "read", read("/api/webhooks/"+found[2]), found[1]+"\n")
		equal(t, "listed", read("/api/webhooks"), "["+found[1]+"]\n")
	})
}

func TestCreateWebhook_OnlyURLIsRequired(t *testing.T) {
	t.Parallel()
	h := deployHooks(t, setup{})
	equal(t, "before", h.ask(t, http.StatusOK, http.MethodGet, "/api/webhooks", "").body, "[]\n")
	var all []hookBody
	for _, body := range []string{hookURL, `{"url":"https://shop.example.com/hooks","types":[],"description":""}`} {
		_, made := h.register(t, body)
		equal(t, "webhook", made.Webhook,
			hookBody{ID: made.Webhook.ID, URL: "https://shop.example.com/hooks", Types: []string{}, Enabled: true,
				CreatedAt: made.Webhook.CreatedAt})
		all = append(all, made.Webhook)
	}
	equal(t, "listed", bodyOf[[]hookBody](t, h.ask(t, http.StatusOK, http.MethodGet, "/api/webhooks", "")), all)
}

func TestWebhooks_ManyErrors_AreAllListed(t *testing.T) {
	t.Parallel()
	h := deployHooks(t, setup{})
	one, before := h.register(t, hookURL)
	for body, pointers := range map[string][]string{
		`{"url":"http://x","types":["card.made","card.generated",1],"secret":"s"}`: {"/url", "/types/0", "/types/2",
			"/secret"},
		`{"url":"ftp://x","types":"card.generated","description":1}`: {"/url", "/types", "/description"},
		`{"url":""}`: {"/url"},
		`{"url":1}`:  {"/url"},
		`{"url":"https://x","description":null,"types":null}`: {
			"/description", "/types"},
		`{"url":"https://` + strings.Repeat("a", 2041) +
			`"}`: {"/url"},
		`{"url":"https://x","description":"` + strings.Repeat("ü", 257) +
			`"}`: {"/description"},
		`{"url":"https://x","types":[` + strings.TrimSuffix(strings.Repeat(`"card.generated",`, 17), ",") +
			`],"x":1}`: {"/types", "/x"},
	} {
		for target, method := range map[string]string{"/api/webhooks": http.MethodPost, one: http.MethodPatch} {
			t.Run(fmt.Sprintf("%s %.80s", method, body), func(t *testing.T) {
				h.send(t, method, target, h.token, body).invalid(t, pointers...)
			})
		}
	}
	for _, body := range []string{`{}`, `{"description":"x"}`} {
		h.send(t, http.MethodPost, "/api/webhooks", h.token, body).invalid(t, "/url")
	}
	h.send(t, http.MethodPost, "/api/webhooks", h.token, `{"url":"https://x","enabled":true}`).invalid(t, "/enabled")
	h.send(t, http.MethodPatch, one, h.token, `{"enabled":"yes","url":"http://x"}`).invalid(t, "/enabled", "/url")
	h.send(t, http.MethodPatch, one, h.token, `{"enabled":null}`).invalid(t, "/enabled")
	h.send(t, http.MethodPatch, one, h.token, "").refused(t, http.StatusBadRequest, "malformed_json")
	h.send(t, http.MethodPost, one+"/test", h.token, `{"type":"card.made","x":1}`).invalid(t, "/type", "/x")
	equal(t, "the webhooks", bodyOf[[]hookBody](t, h.ask(t, http.StatusOK, http.MethodGet, "/api/webhooks", "")),
		[]hookBody{before.Webhook})
}

// Text that PostgreSQL can't store is refused on SQLite, too.
func TestWebhooks_DescriptionWithNUL_IsRefused(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database})
		one, _ := h.register(t, hookURL)
		for target, method := range map[string]string{"/api/webhooks": http.MethodPost, one: http.MethodPatch} {
			h.send(t, method, target, h.token, `{"url":"https://x","description":"a\u0000b"}`).invalid(t, "/description")
			h.send(t, method, target, h.token, `{"url":"https://x\u0000","types":["\u0000"]}`).invalid(t, "/types/0", "/url")
		}
	})
}

func TestCreateWebhook_TooMany_IsRefused(t *testing.T) {
	t.Parallel()
	h := deployHooks(t, setup{})
	var first string
	for range 16 {
		first, _ = h.register(t, hookURL)
	}
	h.send(t, http.MethodPost, "/api/webhooks", h.token, hookURL).refused(t, http.StatusUnprocessableEntity,
		"too_many_webhooks")
	other, _ := h.owner(t)
	h.send(t, http.MethodPost, "/api/webhooks", other, hookURL).want(t, http.StatusCreated)
	h.ask(t, http.StatusNoContent, http.MethodDelete, first, "")
	h.register(t, hookURL)
	h.send(t, http.MethodPost, "/api/webhooks", h.token, hookURL).refused(t, http.StatusUnprocessableEntity,
		"too_many_webhooks")
}

// A process without a sender can't check a URL.
func TestCreateWebhook_NoSender_IsUnavailable(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	d.send(t, http.MethodPost, "/api/webhooks", token, hookURL).refused(t, http.StatusServiceUnavailable, "unavailable")
	equal(t, "webhooks", d.send(t, http.MethodGet, "/api/webhooks", token, "").want(t, http.StatusOK).body, "[]\n")
}

// operations are the operations on one webhook, with the status for its owner.
// The last one deletes it.
func operations(event string) []struct {
	method, path, body string
	status             int
} {
	return []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, "", "", 200}, {http.MethodPatch, "", `{"description":"changed"}`, 200},
		{http.MethodPost, "/rotate-secret", "", 200},
		{http.MethodPost, "/test", "", 200}, {http.MethodGet, "/deliveries", "", 200},
		{http.MethodPost, "/deliveries/" + event + "/redeliver", "", 202},
		{http.MethodPost, "/recover?since=2026-01-01T00:00:00Z", "", 202}, {http.MethodDelete, "", "", 204},
	}
}

// Another account's webhook is indistinguishable from a missing one.
func TestWebhooks_OtherAccount_AreNotFound(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database})
		one, _ := h.register(t, hookURL)
		event := h.happen(t, h.account, card.EventDetected)[0].ID.String()
		stranger, _ := h.owner(t)
		before := h.ask(t, http.StatusOK, http.MethodGet, one, "").body
		nobodys := "/api/webhooks/" + uuid.Must(uuid.NewV7()).String()
		for _, o := range operations(event) {
			template, item, _ := findPath(strings.Split(one+o.path, "?")[0])
			if item == nil || item.Operations()[o.method] == nil {
				t.Errorf("the contract does not have %s %s", o.method, o.path)
			}
			theirs := h.send(t, o.method, one+o.path, stranger, o.body).refused(t, http.StatusNotFound, "not_found")
			none := h.send(t, o.method, nobodys+o.path, h.token, o.body).refused(t, http.StatusNotFound, "not_found")
			equal(t, "detail of "+o.method+" "+template, theirs.Detail, none.Detail)
			h.send(t, o.method, "/api/webhooks/x"+o.path, h.token, o.body).invalid(t, "path/webhook_id")
		}
		equal(t, "the webhook", h.ask(t, http.StatusOK, http.MethodGet, one, "").body, before)
		equal(t, "deliveries", h.states(t, one+"/deliveries"), []string{"1 pending"})
		equal(t, "the stranger's", h.send(t, http.MethodGet, "/api/webhooks", stranger, "").body, "[]\n")
		if h.woken.Load() != 0 || len(h.posts) != 0 {
			t.Errorf("the sender was woken %d times, %d examples were sent", h.woken.Load(), len(h.posts))
		}
		for _, o := range operations(event) {
			h.ask(t, o.status, o.method, one+o.path, o.body)
		}
		h.send(t, http.MethodDelete, one, h.token, "").refused(t, http.StatusNotFound, "not_found")
	})
}

func TestUpdateWebhook_ChangesOnlySentFields(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		h := deployHooks(t, setup{database: database, clock: &clock{}})
		one, made := h.register(t, `{"url":"https://shop.example.com/","description":"d","types":["payment.late"]}`)
		want := made.Webhook
		patch := func(body string) hookBody {
			t.Helper()
			got := bodyOf[hookBody](t, h.ask(t, http.StatusOK, http.MethodPatch, one, body))
			equal(t, "read after "+body, bodyOf[hookBody](t, h.ask(t, http.StatusOK, http.MethodGet, one, "")), got)
			return got
		}
		equal(t, "nothing", patch(`{}`), want)
		want.Description = ""
		equal(t, "description", patch(`{"description":""}`), want)
		want.URL = "https://other.example.com/"
		equal(t, "url", patch(`{"url":"https://other.example.com/"}`), want)
		want.Types = []string{"card.generated", "payment.late"}
		equal(t, "types", patch(`{"types":["card.generated","payment.late"]}`), want)
		want.Types = []string{}
		equal(t, "all types", patch(`{"types":[]}`), want)
		equal(t, "enabled already", patch(`{"enabled":true}`), want)

		h.happen(t, h.account, card.EventDetected)
		off := patch(`{"enabled":false}`)
		if off.Enabled || off.DisabledReason == nil || *off.DisabledReason != "request" || off.DisabledAt == nil ||
			off.DisabledAt.Sub(h.clock.now()).Abs() > time.Minute {
			t.Errorf("%+v", off)
		}
		h.happen(t, h.account, card.EventLate)
		equal(t, "deliveries", h.states(t, one+"/deliveries"), []string{"1 pending"})
		if claims, err := h.store.ClaimWebhooks(t.Context(), h.clock.now(), 9, 0); err != nil || len(claims) != 0 {
			t.Errorf("%d webhooks are enabled, error %v", len(claims), err)
		}
		h.clock.advance(time.Hour)
		equal(t, "disabled already", patch(`{"enabled":false}`), off)
		off.Description = "x"
		equal(t, "description of a disabled one", patch(`{"description":"x"}`), off)
		want.Description = "x"
		equal(t, "enabled again", patch(`{"enabled":true}`), want)
		h.happen(t, h.account, card.EventLate)
		h.settle(t, 200, 500)
		equal(t, "deliveries", h.states(t, one+"/deliveries"), []string{"3 pending", "1 delivered"})
	})
}

func TestUpdateWebhook_Disabled_IsEnabled(t *testing.T) {
	t.Parallel()
	h := deployHooks(t, setup{clock: &clock{}})
	one, made := h.register(t, hookURL)
	h.happen(t, h.account, card.EventDetected)
	read := func() hookBody {
		return bodyOf[hookBody](t, h.ask(t, http.StatusOK, http.MethodGet, one, ""))
	}
	h.settle(t, 500)
	if w := read(); !w.Enabled || w.FailingSince == nil {
		t.Errorf("%+v", w)
	}
	h.clock.advance(time.Hour)
	h.settle(t, 410)
	gone := read()
	if gone.Enabled || gone.DisabledReason == nil || *gone.DisabledReason != "gone" || gone.DisabledAt == nil ||
		gone.FailingSince == nil {
		t.Errorf("%+v", gone)
	}
	equal(t, "disabled by request",
		bodyOf[hookBody](t, h.ask(t, http.StatusOK, http.MethodPatch, one, `{"enabled":false}`)), gone)
	equal(t, "enabled", bodyOf[hookBody](t, h.ask(t, http.StatusOK, http.MethodPatch, one, `{"enabled":true}`)),
		made.Webhook)
}

func TestSecret_IsDisclosedTwice(t *testing.T) {
	t.Parallel()
	h := deployHooks(t, setup{clock: &clock{}})
	one, made := h.register(t, hookURL)
	rotated := bodyOf[webhookWithSecret](t, h.ask(t, http.StatusOK, http.MethodPost, one+"/rotate-secret", ""))
	equal(t, "webhook", rotated.Webhook, made.Webhook)
	h.ask(t, http.StatusOK, http.MethodPost, one+"/test", "")
	equal(t, "signed with", h.last(t).secrets, []string{rotated.Secret, made.Secret})
	h.clock.advance(24 * time.Hour)
	h.ask(t, http.StatusOK, http.MethodPost, one+"/test", "")
	equal(t, "signed a day later with", h.last(t).secrets, []string{rotated.Secret})
	third := bodyOf[webhookWithSecret](t, h.ask(t, http.StatusOK, http.MethodPost, one+"/rotate-secret", "")).Secret
	fourth := bodyOf[webhookWithSecret](t, h.ask(t, http.StatusOK, http.MethodPost, one+"/rotate-secret", "")).Secret
	h.ask(t, http.StatusOK, http.MethodPost, one+"/test", "")
	equal(t, "signed with", h.last(t).secrets, []string{fourth, third})
	_, second := h.register(t, hookURL)
	secrets := map[string]bool{made.Secret: true, rotated.Secret: true, third: true, fourth: true, second.Secret: true}
	equal(t, "different secrets", len(secrets), 5)

	event := h.happen(t, h.account, card.EventDetected)[0].ID.String()
	var shown strings.Builder
	for _, o := range operations(event) {
		if o.path != "/rotate-secret" && o.method != http.MethodDelete {
			shown.WriteString(h.ask(t, o.status, o.method, one+o.path, o.body).body)
		}
	}
	shown.WriteString(h.ask(t, http.StatusOK, http.MethodGet, "/api/webhooks", "").body)
	shown.WriteString(h.ask(t, http.StatusOK, http.MethodGet, "/api/events", "").body)
	h.send(t, http.MethodPatch, one, h.token, `{"secret":"`+fourth+`"}`).invalid(t, "/secret")
	files, err := filepath.Glob(strings.TrimPrefix(h.database, "sqlite:") + "*")
	need(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		need(t, err)
		shown.Write(text)
	}
	shown.WriteString(h.log.String())
	if !strings.Contains(shown.String(), event) || !strings.Contains(shown.String(), `"msg":"request"`) {
		t.Fatal("the secret differs from the one that was shown")
	}
	for secret := range secrets {
		if strings.Contains(shown.String(), strings.TrimPrefix(secret, "whsec_")) ||
			strings.Contains(shown.String(), "whsec_") {
			t.Errorf("%s was returned, logged or stored", secret)
		}
	}
}
