// Package server serves the API over HTTP: it translates requests into calls of
// the actors, and their results into responses.
//
// It may import packages card and openapi, and the actors that it calls. It
// stores nothing: after a crash, clients repeat their requests. This file has
// the order of the middleware. Every other file has one concern, or the
// handlers of one tag.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/limit"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/trace"
	"github.com/cardmint/cardmint/internal/webhook"
)

// Config configures a server.
type Config struct {
	Orders   *order.Service // If nil, only health is served.
	Accounts *account.Service
	Webhooks *webhook.Service
	Log      *slog.Logger // Defaults to slog.Default().
	Audit    *slog.Logger // logs disclosed credentials, at level info. Defaults to Log.
	// Checks are the conditions of readiness. They run in this order. Defaults
	// to none.
	Checks []Check
	// Callbacks are handlers by path for callers that are not clients, such as
	// suppliers. They authenticate the caller themselves. Defaults to none.
	Callbacks map[string]http.Handler
	// Limits limits requests. Defaults to no limits.
	Limits *limit.Limiter
	// Proxies are the networks of trusted reverse proxies, whose
	// X-Forwarded-For is used. Defaults to none.
	Proxies []netip.Prefix
	// Heartbeat is the interval of heartbeats in an idle stream of events.
	// Defaults to 15 s.
	Heartbeat time.Duration
	// Docs serves the documentation, at /, /llms.txt and below /docs. Defaults
	// to none.
	Docs http.Handler
	// Origins are the origins whose pages may call the API from a browser, such
	// as https://shop.example. Defaults to none.
	Origins []string
	// PublicURL is the URL of the service for clients, without a trailing
	// slash. Problem types begin with it, and the published contract names it.
	// Defaults to unknown: types are URLs of the project's guide
	// about errors.
	PublicURL string
	// Metrics records requests. Defaults to none.
	Metrics Metrics
	// Tracer starts the spans of requests. Defaults to none.
	Tracer *trace.Tracer
}

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Audit == nil {
		c.Audit = c.Log
	}
	if c.Limits == nil {
		c.Limits = limit.New(nil, limit.Config{})
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 15 * time.Second
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
}

func (c *Config) registerDocs(routes gin.IRouter) {
	if c.Docs == nil {
		return
	}
	for _, path := range []string{"/", "/docs", "/docs.md", "/docs/*page", "/llms.txt"} {
		routes.GET(path, gin.WrapH(c.Docs))
	}
}

// New returns the handler for the whole service.
func New(cfg Config) (http.Handler, error) {
	cfg.setDefaults()
	engine := newEngine()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	problems := newProblemWriter(cfg.Log, cfg.PublicURL)
	engine.NoRoute(problems.noRoute)
	engine.NoMethod(problems.noMethod)

	spec, err := published()
	if err != nil {
		return nil, err
	}
	engine.Use(requestID)
	if cfg.Tracer != nil {
		engine.Use(traceRequests(cfg.Tracer, spec))
	}
	engine.Use(
		accessLog(cfg.Log),
		recordMetrics(cfg.Metrics, spec),
		problems.recovery,
	)
	(&health{checks: cfg.Checks}).register(headRouter{engine})
	for path, callback := range cfg.Callbacks {
		engine.POST(path, gin.WrapH(http.MaxBytesHandler(callback, maxBody)))
	}
	if cfg.Orders == nil {
		return engine, nil
	}
	if len(cfg.Origins) > 0 {
		engine.Use(newCORS(cfg.Origins, spec).handle)
	}
	spec.register(headRouter{engine}, cfg.PublicURL)
	cfg.registerDocs(headRouter{engine})
	a := &api{orders: cfg.Orders, webhooks: cfg.Webhooks, lists: newLists(), waits: newWaits(), log: cfg.Log,
		auditLog: cfg.Audit, heartbeat: cfg.Heartbeat,
		tags: cfg.Orders.Tagger(), etags: etagPrefix(), gates: newGates(cfg.Metrics)}
	RegisterHandlersWithOptions(
		headRouter{engine.Group("",
			noStore,
			deadline,
			authenticate(cfg, a.gates, problems),
			limitRequests(cfg, spec, problems),
			spec.authorize(problems),
			spec.validate(a, problems),
		)},
		NewStrictHandlerWithOptions(a, []StrictMiddlewareFunc{a.gates.admit}, StrictGinServerOptions{
			RequestErrorHandlerFunc:  problems.badRequest,
			HandlerErrorFunc:         problems.write,
			ResponseErrorHandlerFunc: problems.write,
		}),
		GinServerOptions{ErrorHandler: func(c *gin.Context, err error, _ int) { problems.badRequest(c, err) }},
	)
	// Outside of gin: net/http closes the connection after a body that is too
	// long only if the limit is set on its own ResponseWriter.
	return http.MaxBytesHandler(engine, maxBody), nil
}

// newEngine returns a gin engine that ignores X-Forwarded-For; see proxies.
func newEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.ForwardedByClientIP = false
	_ = engine.SetTrustedProxies(nil) // can't fail for nil
	return engine
}

// Limits of a connection. A stream extends its write deadline while its client
// keeps up.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
)

// shutdownKey is the context key of a channel that is closed when the server
// starts to shut down.
type shutdownKey struct{}

// connKey is the context key of a request's connection.
type connKey struct{}

// shutdown returns a channel that is closed when the server starts to shut
// down. Requests that only wait must return then.
func shutdown(ctx context.Context) <-chan struct{} {
	begun, _ := ctx.Value(shutdownKey{}).(<-chan struct{})
	return begun
}

// Serve serves h on l until ctx is canceled. It then waits up to grace for
// accepted requests, and returns nil if all of them have finished.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger, grace time.Duration) error {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), shutdownKey{}, ctx.Done())
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := s.Shutdown(finishing); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}
