package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

var (
	generatedRequests = flag.Int("generated-requests", 12_000,
		"how many requests TestGenerated sends; a sixth with -short")
	generatedSeed = flag.Uint64("generated-seed", 0, "where TestGenerated begins; 0 for another place every time")
)

// internalText matches text that no response may contain.
var internalText = regexp.MustCompile(
	`(?i)goroutine |panic|runtime error|\bsqlite|\bpq:|\.go:\d|sql:|json: (cannot|unsupported)|strconv\.|/internal/|nil pointer|openapi3|constraint failed`)

// Requests are generated from the contract, and most are then broken in one
// way. Every response fits the contract; well-formed requests are never
// rejected as malformed.
func TestGenerated_ResponsesFitContract(t *testing.T) {
	t.Parallel()
	seed, n := *generatedSeed, *generatedRequests
	if seed == 0 {
		seed = rand.Uint64()
	}
	if testing.Short() {
		n /= 20
	}
	t.Logf("%d requests, -generated-seed %d", n, seed)
	g := newGenerator(t, seed)
	for i := range n {
		if i%400 == 0 {
			g.move(t) // keeps lists short
		}
		r := g.valid(g.operations[i%len(g.operations)])
		want := "" // any response except for malformed requests
		if g.Uint64()%4 > 0 {
			want = g.breakIt(r)
		}
		g.judge(t, r, want, g.send(t, r))
		if g.faults > 10 {
			t.Fatalf("stopped at request %d, -generated-seed %d", i, seed)
		}
	}
	unlucky := func(o operation) bool { return g.worked[o.id] == 0 }
	// all of their requests named deleted resources
	for i := 0; i < 20 && slices.ContainsFunc(g.operations, unlucky); i++ {
		g.move(t)
		for _, o := range g.operations {
			r := g.valid(o)
			g.judge(t, r, "", g.send(t, r))
		}
	}
	for _, status := range slices.Sorted(maps.Keys(g.statuses)) {
		t.Logf("%d: %d", status, g.statuses[status])
	}
	for _, o := range g.operations {
		if g.worked[o.id] == 0 {
			t.Errorf("no request to %s succeeded", o.id)
		}
	}
}

// judge fails the test if the response does not match the request. send has
// already validated it against the contract.
func (g *generator) judge(t *testing.T, r *generated, want string, a answer) {
	t.Helper()
	g.statuses[a.status]++
	var p problem
	if a.status >= 400 && r.method != http.MethodHead {
		need(t, json.Unmarshal([]byte(a.body), &p))
	}
	fault := func(what string) {
		g.faults++
		t.Errorf("%v: status %d, %s: %.2000s", r, a.status, what, a.body)
	}
	if found := internalText.FindString(p.Title + p.Detail + fmt.Sprint(p.Errors)); found != "" {
		fault("which tells " + found)
	}
	switch {
	case a.status == http.StatusServiceUnavailable && p.Code == "address_unavailable":
		g.work()
	case a.status >= 500:
		fault("a failure")
	case want != "" && !slices.Contains(strings.Fields(want), fmt.Sprint(a.status)):
		fault("want " + want)
	case want == "" &&
		(slices.Contains([]int{400, 401, 403, 405, 408, 413, 415, 429}, a.status) || p.Code == "invalid_request" &&
			!r.refusable):
		fault("and is valid")
	case want == "" && a.status < 300:
		g.worked[r.id]++
	}
}

// generated is a generated request.
type generated struct {
	operation
	path      string
	query     url.Values
	headers   map[string]string
	body      any    // nil if the request has none
	text      string // the path to send
	token     string
	refusable bool   // even a valid request may be refused, because of the service's state
	broken    string // how
}

func (r *generated) String() string {
	return fmt.Sprintf("%s %s?%s (%s) %q %.300s", r.method, r.path, r.query.Encode(), r.broken, r.headers, r.text)
}

func (g *generator) send(t *testing.T, r *generated) answer {
	t.Helper()
	target := r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	headers := []string{"Content-Type", absent}
	for name, value := range r.headers {
		headers = append(headers, name, value)
	}
	return g.serve(t, r.method, target, r.token, r.text, headers...)
}

// generator generates requests to a deployment, about existing and missing
// things.
type generator struct {
	*hooks
	*rand.Rand
	operations []operation
	about      map[string][]string // values of parameters that exist
	seq        int64               // a lower bound of the newest event's number
	statuses   map[int]int
	worked     map[string]int
	faults     int
	receiver   string // URL of its webhooks
}

func newGenerator(t *testing.T, seed uint64) *generator {
	g := &generator{hooks: deployHooks(t, setup{clock: &clock{}}), Rand: rand.New(rand.NewPCG(seed, 0)),
		statuses: map[int]int{}, worked: map[string]int{},
		receiver: "https://shop.example.com/hooks/"}
	g.readOperations()
	return g
}

// readOperations reads all operations of the contract.
func (g *generator) readOperations() {
	for path, item := range contract().Paths.Map() {
		for method, o := range item.Operations() {
			g.operations = append(g.operations, operation{o.OperationID, method, path, o})
		}
	}
	slices.SortFunc(g.operations, func(a, b operation) int { return strings.Compare(a.id, b.id) })
}

// move switches to a new account with two cards, a webhook and a delivered
// event.
func (g *generator) move(t *testing.T) {
	g.hooks.token, g.account = g.owner(t)
	g.about = map[string][]string{}
	for range 2 {
		g.about["uuid"] = append(g.about["uuid"], open(t, g.deployment, g.hooks.token, "50"))
	}
	g.about["card"] = g.about["uuid"]
	for range 2 {
		_, made := g.register(t, hookURL)
		g.about["webhook_id"] = append(g.about["webhook_id"], made.Webhook.ID.String())
	}
	for _, e := range g.happen(t, g.account, card.EventDetected, card.EventGenerated) {
		g.about["event_id"] = append(g.about["event_id"], e.ID.String())
		g.seq = e.Seq
	}
	g.clock.advance(time.Second)
	g.work()
}

// id returns an existing id, or a random one.
func (g *generator) id(name string) string {
	if known := g.about[name]; len(known) > 0 && g.IntN(5) > 0 {
		return known[g.IntN(len(known))]
	}
	return uuid.Must(uuid.NewV7()).String()
}
