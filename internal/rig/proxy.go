package rig

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// Fault is what a Proxy does to a request.
type Fault int

// The faults of servers and networks.
const (
	Pass          Fault = iota // none
	Hang                       // no response until Break or Restore is called, or the client disconnects
	Reset                      // the request is not forwarded, and the connection is reset
	LoseAnswer                 // the request is forwarded and executed, but the connection is reset before the response
	RPCError                   // status 200, with a JSON-RPC error
	TruncatedJSON              // status 200, with the first half of the real response
	HTML                       // status 200, with a web page
	EndlessBody                // status 200, with 1 GB of a JSON text that does not end
	Status500                  // status 500
)

const endless = 1 << 30

// Proxy is a reverse proxy on loopback that forwards requests to an HTTP
// server, or fails as servers and networks do. Its methods may be called at any
// time. A login that is bound to a connection, such as Monero's, may not work
// through it.
type Proxy struct {
	URL string

	tb        testing.TB
	transport *http.Transport

	mu      sync.Mutex
	target  *url.URL
	fault   Fault
	methods []string // the methods that meet the fault; all if empty
	changed chan struct{}
	calls   map[string]int
	before  map[string]func()
}

// NewProxy starts a proxy that forwards everything to the URL target. It ends
// with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, transport: &http.Transport{}, changed: make(chan struct{}), calls: map[string]int{},
		before: map[string]func(){}}
	p.Target(target)
	server := httptest.NewUnstartedServer(p)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	p.URL = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections() // or Close would wait for hanging requests
		server.Close()
		p.transport.CloseIdleConnections()
	})
	return p
}

// Target changes the server that requests are forwarded to.
func (p *Proxy) Target(target string) {
	p.tb.Helper()
	u, err := url.Parse(target)
	if err != nil {
		p.tb.Error(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = u
}

// Break applies a fault to requests for the given methods, including pending
// ones, or to all requests if there is no method. A method is the method of a
// JSON-RPC request, or the path of another request. Each call replaces the
// previous fault.
func (p *Proxy) Break(fault Fault, methods ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.methods = fault, methods
	close(p.changed)
	p.changed = make(chan struct{})
}

// Restore removes the fault.
func (p *Proxy) Restore() { p.Break(Pass) }

// Before calls f once, before the next request for a method is handled.
func (p *Proxy) Before(method string, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before[method] = f
}

// Calls returns how many requests for a method have arrived.
func (p *Proxy) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// arrive counts a request, and returns the function to call before it, or nil.
func (p *Proxy) arrive(method string) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[method]++
	f := p.before[method]
	delete(p.before, method)
	return f
}

func (p *Proxy) meets(method string) (fault Fault, target *url.URL, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.methods) > 0 && !slices.Contains(p.methods, method) {
		return Pass, p.target, p.changed
	}
	return p.fault, p.target, p.changed
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // to the end, or the server would not notice that the client disconnects
	if err != nil {
		return
	}
	method := r.URL.Path
	if r.URL.Path == "/json_rpc" {
		var request struct{ Method string }
		_ = json.Unmarshal(body, &request)
		method = request.Method
	}
	if f := p.arrive(method); f != nil {
		f()
	}
	fault, target, changed := p.meets(method)
	for fault == Hang {
		select {
		case <-r.Context().Done():
			return
		case <-changed:
			fault, target, changed = p.meets(method)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.answer(w, r, fault, target)
}

func (p *Proxy) answer(w http.ResponseWriter, r *http.Request, fault Fault, target *url.URL) {
	switch fault {
	case Reset:
		reset(w)
	case LoseAnswer:
		p.pass(httptest.NewRecorder(), r, target)
		reset(w)
	case RPCError:
		_, _ = io.WriteString(w, `{"id":"0","jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error"}}`)
	case TruncatedJSON:
		whole := httptest.NewRecorder()
		p.pass(whole, r, target)
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
	case HTML:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!DOCTYPE html><html><body><h1>It works!</h1></body></html>")
	case EndlessBody:
		_, _ = io.WriteString(w, `{"id":"0","jsonrpc":"2.0","result":{"status":"`)
		some := bytes.Repeat([]byte("x"), 1<<16)
		for sent := 0; sent < endless; sent += len(some) {
			if _, err := w.Write(some); err != nil {
				return
			}
		}
	case Status500:
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
	default:
		p.pass(w, r, target)
	}
}

func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, target *url.URL) {
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: p.transport,
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	forward.ServeHTTP(w, r)
}

// reset resets a connection instead of closing it.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
