// Package server serves the API over HTTP: it turns requests into calls of the
// actors, and their results into responses.
//
// It may import packages card and openapi, and the actors that it calls. It
// stores nothing: a request that a crash interrupts is up to the client to
// repeat. This file has the order of the middleware. Every other file has one
// concern, or the handlers of one tag.
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
	Audit    *slog.Logger // is told who reads credentials, at level info. Defaults to Log.
	// Checks are what readiness depends on. They run in this order. Defaults to
	// none.
	Checks []Check
	// Callbacks are what others call that are not clients, by path. They
	// authenticate the caller themselves. Defaults to none.
	Callbacks map[string]http.Handler
	// Limits says how many requests are too many. Defaults to none.
	Limits *limit.Limiter
	// Proxies are the networks of reverse proxies whose X-Forwarded-For is
	// believed. Defaults to none.
	Proxies []netip.Prefix
	// Heartbeat is how often a stream of events without an event shows that it
	// lives. Defaults to 15 s.
	Heartbeat time.Duration
	// Docs serves the pages for people, at / and below /docs. Defaults to none.
	Docs http.Handler
	// Origins are those whose pages may call the API from a browser, such as
	// https://shop.example. Defaults to none.
	Origins []string
	// PublicURL is where clients reach the service, without a slash at its end;
	// the type of a problem leads there. Defaults to unknown: the type leads to
	// the project's README.
	PublicURL string
	// Metrics is told of requests. Defaults to none.
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
	for _, path := range []string{"/", "/docs", "/docs/*page"} {
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
	spec.register(headRouter{engine})
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
	// Outside gin: net/http closes the connection after a body that is too long
	// only if the limit is set on its own ResponseWriter.
	return http.MaxBytesHandler(engine, maxBody), nil
}

// newEngine returns a gin engine that believes nobody's X-Forwarded-For:
// package server finds out for itself where requests come from.
func newEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.ForwardedByClientIP = false
	_ = engine.SetTrustedProxies(nil) // can't fail without any
	return engine
}

// The limits of one connection. A list that takes longer to send extends its
// write deadline as long as the client keeps up.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
)

// shutdownKey is the key of the channel, in the context of a request, that is
// closed when the server begins to end.
type shutdownKey struct{}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// shutdown returns a channel that is closed when the server begins to end: who
// waits for nothing but time must then stop waiting.
func shutdown(ctx context.Context) <-chan struct{} {
	begun, _ := ctx.Value(shutdownKey{}).(<-chan struct{})
	return begun
}

// Serve serves h on l until ctx ends. It then lets accepted requests finish,
// for at most grace. It returns nil if all of them did.
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
