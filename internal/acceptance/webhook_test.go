package acceptance_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// flakyReceiver is a receiver that fails half of all requests at random.
type flakyReceiver struct {
	secret client.Secret
	random *rand.Rand

	mu       sync.Mutex
	accepted map[uuid.UUID]*client.Event // events that got status 200
	bad      []string
	tries    int
}

func (h *flakyReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e, err := client.ParseWebhook(body, r.Header, h.secret)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries++
	if err != nil {
		h.bad = append(h.bad, err.Error())
		return
	}
	if h.random.IntN(2) == 0 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h.accepted[e.ID] = e
}

func (h *flakyReceiver) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.accepted)
}

// expireClaims ends the leases and claims of a dead process, and makes all
// scheduled attempts due.
func expireClaims(t *testing.T, url string) {
	t.Helper()
	db := rig.OpenSQL(t, url)
	for _, statement := range []string{
		"UPDATE leases SET expires_at = 0", "UPDATE webhooks SET claimed_until = 0, paused_until = 0",
		"UPDATE deliveries SET due_at = 1 WHERE due_at > 0", "UPDATE intents SET due_at = 0 WHERE state = 'open'",
	} {
		if _, err := db.Exec(statement); err != nil && !strings.Contains(err.Error(), "locked") {
			t.Fatal(err)
		}
	}
}

// TestWebhooks_ProcessKilled_LosesNoEvent sells 250 cards, which create 500
// events. The process is killed 50 times, and the receiver fails half of all
// requests.
func TestWebhooks_ProcessKilled_LosesNoEvent(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: kills the process 50 times, which takes 15 s")
	}
	t.Parallel()
	const cards, kills = 250, 50
	for name, open := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "x.db") },
		"postgres": func(t *testing.T) string { return rig.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			url := open(t)
			p := newProgram(t, url)
			token := p.account(t)
			args := []string{"serve", "--simulated", "--rate", "monero=150", "--webhook-insecure", "--webhook-timeout", "500ms"}
			h := &flakyReceiver{random: rand.New(rand.NewPCG(seed, 1)), accepted: map[uuid.UUID]*client.Event{}}
			receiver := httptest.NewServer(h)
			t.Cleanup(receiver.Close)

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s := p.serve(t, args...)
			w, err := newClient(t, s.url, token).CreateWebhook(ctx, client.CreateWebhookRequest{URL: receiver.URL})
			if err != nil {
				t.Fatal(err)
			}
			h.mu.Lock()
			h.secret = w.Secret
			h.mu.Unlock()

			// A shop orders and pays, and repeats requests that failed.
			addresses := make(chan string, 1)
			addresses <- s.url
			shopped := make(chan struct{})
			go func() {
				defer close(shopped)
				base := <-addresses
				for n := 0; n < cards && ctx.Err() == nil; {
					if buyCard(ctx, base, token, n) {
						n++
						continue
					}
					select {
					case base = <-addresses:
					case <-time.After(20 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}()
			chance := rand.New(rand.NewPCG(seed, 2))
			for range kills {
				<-time.After(time.Duration(chance.IntN(400)) * time.Millisecond)
				s.Kill()
				expireClaims(t, url)
				s = p.serve(t, args...)
				select {
				case <-addresses:
				default:
				}
				addresses <- s.url
			}
			<-shopped
			for deadline := time.Now().Add(time.Minute); h.count() < 2*cards; {
				if time.Now().After(deadline) {
					t.Fatalf("%d of %d events arrived", h.count(), 2*cards)
				}
				expireClaims(t, url)
				// One event in a thousand fails ten times, and is then no
				// longer sent.
				if _, err := newClient(t, s.url, token).RecoverWebhook(ctx, w.Webhook.ID, time.Unix(0, 0)); err != nil {
					t.Fatal(err)
				}
				<-time.After(200 * time.Millisecond)
			}

			seq := int64(0)
			h.mu.Lock()
			defer h.mu.Unlock()
			for e, err := range newClient(t, s.url, token).Events(ctx, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if seq++; e.Seq != seq {
					t.Errorf("event %d has seq %d", seq, e.Seq)
				}
				if got := h.accepted[e.ID]; got == nil || got.Seq != e.Seq || got.Type != e.Type || got.CardUUID != e.CardUUID {
					t.Errorf("event %+v arrived as %+v", e, got)
				}
			}
			if seq != 2*cards || len(h.accepted) != 2*cards || len(h.bad) > 0 {
				t.Errorf("%d events, %d arrived, invalid requests: %v", seq, len(h.accepted), h.bad)
			}
			t.Logf("%d requests for %d events", h.tries, seq)
			if out, stderr, code := p.run("reconcile"); code != 0 {
				t.Errorf("reconcile: %s%s", out, stderr)
			}
			s.stop(t)
		})
	}
}

// buyCard orders and pays the n-th card. It returns false unless the card is
// issued.
func buyCard(ctx context.Context, base, token string, n int) bool {
	c, err := client.New(base, token, client.WithRetry(1, 0), client.WithAttemptTimeout(3*time.Second))
	if err != nil {
		return false
	}
	made, err := c.CreateCard(ctx, client.CreateCardRequest{USDAmount: decimal.NewFromInt(150), Currency: "monero"},
		client.WithIdempotencyKey(fmt.Sprint("order-", n)))
	if err != nil {
		return false
	}
	made, err = c.SimulatePayment(ctx, made.UUID, client.SimulatePaymentRequest{})
	return err == nil && made.Status == client.CardStatusGenerated
}
