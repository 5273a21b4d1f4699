// Package reference is a supplier of test cards, for development and tests: the
// counterpart of supplier.HTTP. It implements openapi/supplier.yaml, and can be
// configured to violate it.
//
// It may import packages card and supplier. Requests and cards are in a SQLite
// file. Each change is committed together with its entry in an append-only
// ledger: after a crash the same key still yields the same card, and the ledger
// contains every card that was ever issued.
package reference

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
)

const (
	maxBody         = 16 << 10
	problemType     = "application/problem+json"
	callbackTries   = 5
	callbackTimeout = 5 * time.Second
)

// Config configures a server.
type Config struct {
	File    string           // SQLite file, created if missing. Required.
	Secrets supplier.Secrets // verify requests, and sign callbacks. Required.
	// Offers limit cards by Offer.Left, counted since the file was created.
	// Defaults to unlimited cards of 50 to 750 dollars.
	Offers      []card.Offer
	Rules       []Rule           // Defaults to none.
	Seed        uint64           // of the draws
	Slowness    time.Duration    // of answers, if Slow. Defaults to 2 s.
	PendingFor  time.Duration    // of cards, if Pending. Defaults to 3 s.
	ForgetAfter time.Duration    // retention of keys. Defaults to forever.
	RetryAfter  time.Duration    // of RateLimited and Maintenance, in whole seconds. Defaults to 1 s.
	CallbackURL string           // receives the callbacks of Pending cards. Defaults to none.
	Now         func() time.Time // Defaults to time.Now.
	Log         *slog.Logger     // Defaults to slog.Default().
}

// Server is a supplier. It is safe for concurrent use.
type Server struct {
	cfg    Config
	db     *sql.DB
	rules  *rules
	engine *gin.Engine
	poster *http.Client
}

// Open returns a server. The caller must close it.
func Open(cfg Config) (*Server, error) {
	cfg.Slowness = cmp.Or(cfg.Slowness, 2*time.Second)
	cfg.PendingFor = cmp.Or(cfg.PendingFor, 3*time.Second)
	cfg.RetryAfter = cmp.Or(cfg.RetryAfter, time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if len(cfg.Offers) == 0 {
		cfg.Offers = []card.Offer{{Min: card.MinUSD, Max: card.MaxUSD, Left: card.Unlimited}}
	}
	db, err := open(cfg.File)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, db: db, rules: &rules{all: cfg.Rules, dice: rand.New(rand.NewPCG(cfg.Seed, 0))},
		poster: &http.Client{Timeout: callbackTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}
	gin.SetMode(gin.ReleaseMode)
	s.engine = gin.New()
	s.engine.NoRoute(func(c *gin.Context) {
		writeFault(c.Writer, &fault{http.StatusNotFound, ProblemCodeMalformed, "The contract has no such path."})
	})
	RegisterHandlers(s.engine.Group("", s.verify, s.hinder), NewStrictHandlerWithOptions(s, nil, StrictGinServerOptions{
		RequestErrorHandlerFunc: func(c *gin.Context, _ error) {
			writeFault(c.Writer,
				&fault{http.StatusBadRequest, ProblemCodeMalformed, "The body is not the JSON that the contract asks for."})
		},
		HandlerErrorFunc:         s.fail,
		ResponseErrorHandlerFunc: s.fail,
	}))
	return s, nil
}

// Close closes the file.
func (s *Server) Close() error {
	s.poster.CloseIdleConnections()
	return s.db.Close()
}

// ServeHTTP serves the contract.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.engine.ServeHTTP(w, r) }

// Behave replaces the rules.
func (s *Server) Behave(rules ...Rule) { s.rules.set(rules) }

// Ledger returns every entry, oldest first. Card numbers are masked.
func (s *Server) Ledger(ctx context.Context) ([]Entry, error) { return entries(ctx, s.db) }

// fault is a problem response.
type fault struct {
	status int
	code   ProblemCode
	detail string
}

func (f *fault) Error() string { return f.detail }

func writeFault(w http.ResponseWriter, f *fault) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(
		Problem{Type: "about:blank", Title: http.StatusText(f.status), Status: int32(f.status), Code: f.code,
			Detail: f.detail})
}

func (s *Server) fail(c *gin.Context, err error) {
	var f *fault
	if !errors.As(err, &f) {
		s.cfg.Log.Error("request failed", "error", err)
		f = &fault{http.StatusInternalServerError, ProblemCodeInternal, "Something failed; the card may have been made."}
	}
	writeFault(c.Writer, f)
}

// verify rejects unsigned requests.
func (s *Server) verify(c *gin.Context) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	if err != nil {
		writeFault(c.Writer, &fault{http.StatusBadRequest, ProblemCodeMalformed, "The body is cut off or too long."})
		c.Abort()
		return
	}
	if err := s.cfg.Secrets.VerifyRequest(c.Request.Method, c.Request.RequestURI, c.Request.Header, body,
		s.cfg.Now()); err != nil {
		writeFault(c.Writer,
			&fault{http.StatusUnauthorized, ProblemCodeUnauthorized, strings.ToUpper(err.Error()[:1]) + err.Error()[1:] + "."})
		c.Abort()
		return
	}
	c.Request.Body = io.NopCloser(bytes.NewReader(body))
}

// hinder applies the rules that concern every request.
func (s *Server) hinder(c *gin.Context) {
	if s.rules.draw(Slow) {
		select {
		case <-time.After(s.cfg.Slowness):
		case <-c.Request.Context().Done():
		}
	}
	var f *fault
	switch {
	case s.rules.draw(RateLimited):
		f = &fault{http.StatusTooManyRequests, ProblemCodeTooManyRequests,
			"The request was not executed: the server simulates a rate limit."}
	case s.rules.draw(Maintenance):
		f = &fault{http.StatusServiceUnavailable, ProblemCodeUnavailable,
			"The request was not executed: the server simulates maintenance."}
	default:
		return
	}
	c.Header("Retry-After", strconv.Itoa(int(s.cfg.RetryAfter/time.Second)))
	writeFault(c.Writer, f)
	c.Abort()
}

// Tick sends the callbacks of pending cards that are due. Call it in a loop.
func (s *Server) Tick(ctx context.Context) error {
	var due []string
	err := s.write(ctx, func(b book) (err error) {
		due, err = b.uncalled()
		return err
	})
	if err != nil {
		return err
	}
	for _, key := range due {
		fewer := "calls_left - 1"
		if s.call(ctx, key) {
			fewer = "0"
		}
		if _, err := s.db.ExecContext(ctx, "UPDATE requests SET calls_left = "+fewer+" WHERE key = ?", key); err != nil {
			return err
		}
	}
	return nil
}

// call sends a callback, and reports whether it was accepted.
func (s *Server) call(ctx context.Context, key string) bool {
	body, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.CallbackURL, bytes.NewReader(body))
	if err != nil {
		return false
	}
	req.Header = s.cfg.Secrets.SignMessage(fmt.Sprintf("cb_%.60s", key), s.cfg.Now(), body)
	req.Header.Set("Content-Type", "application/json")
	res, err := s.poster.Do(req)
	if err != nil {
		s.cfg.Log.Warn("callback failed", "key", key, "error", err)
		return false
	}
	_ = res.Body.Close()
	if res.StatusCode/100 != 2 {
		s.cfg.Log.Warn("callback refused", "key", key, "status", res.StatusCode)
	}
	return res.StatusCode/100 == 2
}
