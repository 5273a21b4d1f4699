package acceptance_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/supplier"
	"github.com/cardmint/cardmint/internal/supplier/reference"
)

// collector is a receiver of OTLP.
type collector struct {
	web *httptest.Server

	mu       sync.Mutex
	requests int
	raw      bytes.Buffer
	spans    []*tracepb.Span
	services []string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.web = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err == nil {
			err = proto.Unmarshal(body, &data)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests++
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
			r.Header.Get("X-Key") != "a b" {
			t.Errorf("%s %s %v: %v", r.Method, r.URL, r.Header, err)
		}
		c.raw.Write(body)
		for _, of := range data.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				c.services = append(c.services, a.Key+"="+a.Value.GetStringValue())
			}
			for _, in := range of.ScopeSpans {
				c.spans = append(c.spans, in.Spans...)
			}
		}
	}))
	t.Cleanup(c.web.Close)
	return c
}

// tracedService is a shop whose supplier and webhook receiver record the trace
// headers of requests.
type tracedService struct {
	t              *testing.T
	program        *program
	supplierConfig string
	hook           string

	mu              sync.Mutex
	supplierParents []string       // traceparents of the requests that submit cards
	posts           chan [2]string // type and trace headers of each webhook request
}

func newTracedService(t *testing.T, database string) *tracedService {
	t.Helper()
	x := &tracedService{t: t, program: newProgram(t, database), posts: make(chan [2]string, 16)}
	dir := t.TempDir()
	secrets, err := supplier.ParseSecrets(supplierSecret)
	must(t, err)
	supplierServer, err := reference.Open(
		reference.Config{File: filepath.Join(dir, "supplier.db"), Secrets: secrets, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = supplierServer.Close() })
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut || r.Method == http.MethodPost {
			x.mu.Lock()
			x.supplierParents = append(x.supplierParents, r.Header.Get("Traceparent"))
			x.mu.Unlock()
		}
		supplierServer.ServeHTTP(w, r)
	}))
	t.Cleanup(endpoint.Close)
	x.supplierConfig = writeSuppliers(t, dir, endpoint.URL)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e struct{ Type string }
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		x.posts <- [2]string{e.Type, r.Header.Get("Traceparent") + r.Header.Get("Tracestate") + r.Header.Get("Baggage")}
	}))
	t.Cleanup(receiver.Close)
	x.hook = receiver.URL + "/SECRETPATH"
	return x
}

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// sell orders a card within a trace of the client, pays for it, and waits until
// it is issued and the webhook request has arrived. It returns the card, the
// trace headers of that request, and texts that must not be sent to the
// collector.
func (x *tracedService) sell(api *server, token string) (card *client.Card, post string, secrets []string) {
	t := x.t
	t.Helper()
	shop := newClient(t, api.url, token)
	hook, err := shop.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: x.hook})
	must(t, err)
	ordered := x.order(api, token)
	_, err = shop.SimulatePayment(t.Context(), ordered.UUID, client.SimulatePaymentRequest{})
	must(t, err)
	card, err = shop.WaitForCard(t.Context(), ordered.UUID)
	must(t, err)
	for post == "" {
		select {
		case p := <-x.posts:
			if p[0] == "card.generated" {
				post = p[1] + " "
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no webhook request for the card")
		}
	}
	return card, strings.TrimSpace(post), []string{card.Credentials.CardNumber, card.Credentials.URLPassword,
		card.Credentials.URL, card.Payment.Address,
		card.Payment.Amount.String(), token, hook.Secret.Reveal(), supplierSecret.Reveal(), "SECRET", "151.37"}
}

// order orders a card within a trace of the client. It retries until the
// service has an address.
func (x *tracedService) order(api *server, token string) (ordered client.Card) {
	t := x.t
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.url+"/api/cards",
			strings.NewReader(`{"usd_amount":"151.37","currency":"monero","reference":"SECRETREFERENCE"}`))
		must(t, err)
		for name, value := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json",
			"Traceparent": "00-" + clientTrace + "-" + clientSpan + "-01",
			"Tracestate":  "vendor=SECRETSTATE", "Baggage": "k=SECRETBAGGAGE", "User-Agent": "SECRETAGENT",
			"Idempotency-Key": "SECRETKEY"} {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		body, err := io.ReadAll(response.Body)
		must(t, err)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusCreated {
			must(t, json.Unmarshal(body, &ordered))
			return ordered
		}
		if response.StatusCode != http.StatusServiceUnavailable || time.Now().After(deadline) {
			t.Fatalf("order: %s %s", response.Status, body)
		}
	}
}

// TestTraces_SoldCard_IsOneTrace sells a card with one process, and with two
// that share a database, and checks the spans that arrive at a collector.
func TestTraces_SoldCard_IsOneTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: runs several processes")
	}
	for name, start := range map[string]func(*testing.T, *tracedService) (api, worker *server, token string){
		"dev": func(t *testing.T, x *tracedService) (api, worker *server, token string) {
			s := x.program.serve(t, "dev", "--suppliers", x.supplierConfig)
			return s, s, regexp.MustCompile(`(?m)^token: (\S+)$`).FindStringSubmatch(s.Output())[1]
		},
		"api and worker": func(t *testing.T, x *tracedService) (api, worker *server, token string) {
			token = x.program.account(t)
			worker = x.program.serve(t, serveSimulated("--role", "worker", "--suppliers", x.supplierConfig, "--webhook-insecure")...)
			return x.program.serve(t, serveSimulated("--role", "api", "--webhook-insecure")...), worker, token
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := ""
			if name != "dev" {
				database = rig.Postgres(t)
			}
			x, c := newTracedService(t, database), newCollector(t)
			x.program.env = append(x.program.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.web.URL+"/",
				"OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20b", "OTEL_SERVICE_NAME=cards")
			api, worker, token := start(t, x)
			card, post, secrets := x.sell(api, token)
			api.stop(t) // sends the remaining spans
			if worker != api {
				worker.stop(t)
			}
			x.checkSpans(c, card, post)
			for _, secret := range secrets {
				if bytes.Contains(c.raw.Bytes(), []byte(secret)) {
					t.Errorf("the collector received %q", secret)
				}
			}
			if !slices.Contains(c.services, "service.name=cards") || !slices.Contains(c.services, "service.version=(devel)") &&
				!slices.ContainsFunc(c.services, func(s string) bool { return strings.HasPrefix(s, "service.version=") }) {
				t.Errorf("service attributes are %v", c.services)
			}
			for out, line := range map[string]string{worker.Output(): `msg="card issued" card=` + card.UUID.String() +
				` supplier=acme attempts=1 since_paid=\S+s loop="issue acme" trace_id=` + clientTrace,
				api.Output(): `msg=request .* route=/api/cards status=201 .* trace_id=` + clientTrace} {
				if !regexp.MustCompile(line).MatchString(out) {
					t.Errorf("the log has no line %s", line)
				}
			}
		})
	}
}

// checkSpans checks the spans of the client's trace.
func (x *tracedService) checkSpans(c *collector, card *client.Card, post string) {
	t := x.t
	t.Helper()
	keys := map[string]bool{}
	byName := map[string]*tracepb.Span{}
	passes := map[string]bool{}
	for _, s := range c.spans {
		for _, a := range s.Attributes {
			keys[a.Key] = true
		}
		if s.Name == "pass monero" {
			passes[hex.EncodeToString(s.SpanId)] = true
		}
		name := s.Name
		if name == "deliver webhook" {
			name += " " + attribute(s, "cardmint.event")
		}
		if hex.EncodeToString(s.TraceId) == clientTrace {
			byName[name] = s
		}
	}
	request := byName["createCard"]
	if request == nil {
		t.Fatalf("no span of the request among %d spans", len(c.spans))
	}
	id := func(s *tracepb.Span) string { return hex.EncodeToString(s.GetSpanId()) }
	for name, parent := range map[string]string{"createCard": clientSpan, "payment confirmed": id(request),
		"issue card": id(request), "supplier submit": id(byName["issue card"]),
		"deliver webhook payment.detected": id(request), "deliver webhook card.generated": id(request)} {
		s := byName[name]
		if got := hex.EncodeToString(s.GetParentSpanId()); s == nil || got != parent {
			t.Errorf("the parent of %s is %q, want %q", name, got, parent)
		}
		if got := attribute(s, "cardmint.card"); name != "supplier submit" && got != card.UUID.String() {
			t.Errorf("%s is about card %q", name, got)
		}
		if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("%s failed", name)
		}
	}
	if links := byName["payment confirmed"].GetLinks(); len(links) != 1 || !passes[hex.EncodeToString(links[0].SpanId)] {
		t.Errorf("payment confirmed links to %v, the passes are %v", links, passes)
	}
	of := func(s *tracepb.Span) string { return "00-" + clientTrace + "-" + id(s) + "-01" }
	if want := []string{of(byName["supplier submit"])}; !slices.Equal(x.supplierParents, want) {
		t.Errorf("the supplier received %q, want %q", x.supplierParents, want)
	}
	if want := of(byName["deliver webhook card.generated"]); post != want {
		t.Errorf("the webhook received %q, want %q", post, want)
	}
	if got := attribute(byName["supplier submit"], "cardmint.outcome"); got != "issued" {
		t.Errorf("the supplier's outcome is %q", got)
	}
	want := []string{"cardmint.attempt", "cardmint.card", "cardmint.cards", "cardmint.event", "cardmint.outcome",
		"cardmint.supplier", "cardmint.transfers",
		"http.request.method", "http.response.status_code", "http.route"}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) {
		t.Errorf("attributes %v, want %v", got, want)
	}
}

func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// Without an endpoint, the service sends no spans, and does not propagate the
// trace of a request. If the endpoint is unreachable, the service works as
// usual.
func TestTraces_NoCollector_ServiceWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: runs several processes")
	}
	for name, more := range map[string][]string{"off": nil,
		"disabled": {"CARDMINT_OTLP_ENDPOINT=http://127.0.0.1:9", "OTEL_SDK_DISABLED=true"},
		"void":     {"CARDMINT_OTLP_ENDPOINT=http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY=50"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTracedService(t, "")
			x.program.env = append(x.program.env, more...)
			token := x.program.account(t)
			s := x.program.serve(t, serveSimulated("--suppliers", x.supplierConfig, "--webhook-insecure")...)
			card, post, _ := x.sell(s, token)
			s.stop(t)
			on := name == "void"
			if (post != "") != on || len(x.supplierParents) != 1 || (x.supplierParents[0] != "") != on {
				t.Errorf("supplier and webhook received %q and %q", x.supplierParents, post)
			}
			if text := s.Output(); strings.Contains(text, "trace_id=") != on ||
				strings.Contains(text, "traces lost: the collector does not accept them") != on {
				t.Errorf("log:\n%s", text)
			}
			var parent *string
			must(t, rig.OpenSQL(t,
				x.program.setting("CARDMINT_DATABASE_URL")).QueryRow("SELECT trace_parent FROM cards WHERE uuid = $1",
				card.UUID.String()).Scan(&parent))
			if (parent != nil) != on {
				t.Errorf("stored trace parent is %v", parent)
			}
		})
	}
}

func TestTraces_BadEndpoint_IsRefused(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	p.must(t, "keys", "create")
	for endpoint, env := range map[string]string{"127.0.0.1:4318": "", "ftp://127.0.0.1": "",
		"http://SECRET@127.0.0.1:4318": "", "http://127.0.0.1:4317": "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"} {
		q := *p
		q.env = append(slices.Clone(p.env), env)
		_, stderr, code := q.run(serveSimulated("--otlp-endpoint", endpoint)...)
		if code != 1 || !strings.Contains(stderr, "hint: ") || strings.Contains(stderr, "SECRET") {
			t.Errorf("%s %s: exit code %d\n%s", endpoint, env, code, stderr)
		}
	}
}
