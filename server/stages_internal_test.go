package server

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/order"
)

// fixed contains the parts of the service that are not measured, without a
// database.
type fixed struct {
	StrictServerInterface
	account.Store
	order.Rates
	token *account.Token
	card  Card
}

func (f fixed) TokenByHash(context.Context, []byte) (account.Token, error) { return *f.token, nil }
func (f fixed) InsertToken(_ context.Context, t account.Token) error       { *f.token = t; return nil }
func (f fixed) AccountByName(context.Context, string) (account.Account, error) {
	return account.Account{ID: uuid.New()}, nil
}

func (fixed) Setting(_ context.Context, _, proposed string) (string, error) { return proposed, nil }

func (fixed) Digest(label string, data []byte) ([]byte, error) {
	sum := sha256.Sum256(append([]byte(label), data...))
	return sum[:], nil
}

func (fixed) Seal(_, _ uuid.UUID, _ string, text card.Secret) ([]byte, error) {
	return []byte(text.Reveal()), nil
}

func (fixed) Open(_, _ uuid.UUID, _ string, sealed []byte) (card.Secret, error) {
	return card.Secret(sealed), nil
}

func (f fixed) GetCard(context.Context, GetCardRequestObject) (GetCardResponseObject, error) {
	return GetCard200JSONResponse{Body: f.card}, nil
}

func (f fixed) ListCards(context.Context, ListCardsRequestObject) (ListCardsResponseObject, error) {
	return ListCards200JSONResponse{Body: []Card{f.card}}, nil
}

func (f fixed) CreateCard(context.Context, CreateCardRequestObject) (CreateCardResponseObject, error) {
	return CreateCard201JSONResponse{Body: CreatedCard{UUID: f.card.UUID}}, nil
}

// discard is a response writer that discards.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// stages are the middlewares between gin and the strict handlers, in their
// order.
func stages(b *testing.B, limits *limit.Limiter, gates *gates) (handlers []gin.HandlerFunc, f fixed, token string) {
	b.Helper()
	f = fixed{token: &account.Token{}, card: Card{UUID: uuid.New(), Status: "awaiting_payment"}}
	accounts, err := account.New(f, f, account.Config{})
	if err != nil {
		b.Fatal(err)
	}
	_, text, err := accounts.CreateToken(b.Context(), "", account.TokenRequest{Scopes: account.AllScopes})
	if err != nil {
		b.Fatal(err)
	}
	orders, err := order.New(nil, nil, f, nil, nil, order.Config{Currencies: chain.Currencies()[:1]})
	if err != nil {
		b.Fatal(err)
	}
	s, err := published()
	if err != nil {
		b.Fatal(err)
	}
	problems := newProblemWriter(slog.New(slog.DiscardHandler), "")
	cfg := Config{Accounts: accounts, Limits: limits, Metrics: noMetrics{}}
	handlers = []gin.HandlerFunc{authenticate(cfg, gates, problems), limitRequests(cfg, s, problems),
		s.authorize(problems),
		s.validate(&api{orders: orders}, problems)}
	return handlers, f, text.Reveal()
}

// BenchmarkStages measures requests through increasingly many stages before the
// handler: "bare" is the strict handler alone; "refused" is a request beyond a
// limit.
func BenchmarkStages(b *testing.B) {
	for _, r := range []struct{ name, method, target, body string }{
		{"getCard", "GET", "/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", ""},
		{"listCards", "GET", "/api/cards?limit=10&status=generated", ""},
		{"createCard", "POST", "/api/cards", `{"usd_amount": "150.50", "currency": "monero"}`},
	} {
		for n, name := range []string{"bare", "authenticate", "limits", "authorize", "validate", "admit"} {
			b.Run(r.name+"/"+name, func(b *testing.B) {
				most := limit.Policy{Quota: 1_000_000, Window: time.Second}
				gates := newGates(noMetrics{})
				handlers, f, token := stages(b,
					limit.New(nil, limit.Config{Token: most, Account: most, Create: most, Address: most}), gates)
				var inner []StrictMiddlewareFunc
				if n > len(handlers) {
					n, inner = len(handlers), []StrictMiddlewareFunc{gates.admit}
				}
				engine := newEngine()
				RegisterHandlers(engine.Group("", handlers[:n]...), NewStrictHandler(f, inner))
				run(b, engine, r.method, r.target, r.body, token, http.StatusOK)
			})
		}
		b.Run(r.name+"/refused", func(b *testing.B) {
			none := limit.Policy{Quota: 1, Window: 24 * time.Hour}
			handlers, f, token := stages(b,
				limit.New(nil, limit.Config{Token: none, Account: none, Create: none, Address: none}), newGates(noMetrics{}))
			engine := newEngine()
			RegisterHandlers(engine.Group("", handlers...), NewStrictHandler(f, nil))
			run(b, engine, r.method, r.target, r.body, token, http.StatusTooManyRequests)
		})
	}
}

func run(b *testing.B, h http.Handler, method, target, body, token string, want int) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), method, target, nil)
	if err != nil {
		b.Fatal(err)
	}
	request.RemoteAddr = "192.0.2.1:4711"
	request.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
		request.ContentLength = int64(len(body))
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		w := &discard{header: http.Header{}, status: http.StatusOK}
		r := *request
		if body != "" {
			r.Body = io.NopCloser(strings.NewReader(body))
		}
		h.ServeHTTP(w, &r)
		if w.status/100 != want/100 && n > 0 {
			b.Fatalf("status %d", w.status)
		}
	}
}
