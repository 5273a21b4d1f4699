//go:build prism

package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	prismProgram  = "../tools/prism/node_modules/@stoplight/prism-cli/dist/index.js"
	prismDocument = "../openapi/openapi.yaml"
	ownProgram    = "../bin/cardmint"
)

var prismRequests = flag.Int("prism-requests", 1_000, "how many requests go through Prism to the service")

// start runs a program until the test ends. It returns once the program has
// printed a line with each of the marks, with the rest of those lines.
func start(t *testing.T, marks []string, name string, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "."
	out, err := cmd.StdoutPipe()
	need(t, err)
	cmd.Stderr = cmd.Stdout
	need(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var all, found []string
	for len(found) < len(marks) && lines.Scan() {
		all = append(all, lines.Text())
		if _, rest, ok := strings.Cut(lines.Text(), marks[len(found)]); ok {
			found = append(found, strings.TrimSpace(rest))
		}
	}
	drained := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, out); close(drained) }()
	t.Cleanup(func() { cancel(); <-drained; _ = cmd.Wait() })
	if len(found) < len(marks) {
		t.Fatalf("%s did not start:\n%s", name, strings.Join(all, "\n"))
	}
	return found
}

// prism runs Prism and returns its address.
func prism(t *testing.T, args ...string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	need(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	need(t, err)
	need(t, free.Close())
	start(t, []string{"Prism is listening"}, "node",
		append([]string{prismProgram, args[0], "--port", port, "--errors"}, args[1:]...)...)
	return "http://127.0.0.1:" + port
}

// ask sends a request to a server and returns the response.
func ask(t *testing.T, server string, r *generated) (*http.Response, []byte) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), r.method, server+r.path, strings.NewReader(r.text))
	need(t, err)
	q.URL.RawQuery = r.query.Encode()
	q.Header.Set("Authorization", "Bearer "+r.token)
	for name, value := range r.headers {
		q.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(q)
	need(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	need(t, err)
	return res, body
}

// The responses of a mock server that knows only the contract are consistent.
func TestPrism_Mock_IsConsistent(t *testing.T) {
	mock := prism(t, "mock", prismDocument)
	g := &generator{hooks: &hooks{token: "t"}, Rand: rand.New(rand.NewPCG(1, 0))}
	g.readOperations()
	n := 0
	for _, o := range g.operations {
		for status, response := range o.Responses.Map() {
			names := []string{""}
			if media := response.Value.Content["application/json"]; media != nil {
				names = append(names, slices.Sorted(maps.Keys(media.Examples))...)
			}
			for _, name := range names {
				r := g.valid(o)
				r.headers["Accept"] = "application/json, application/problem+json"
				r.headers["Prefer"] = "code=" + status
				if name != "" {
					r.headers["Prefer"] += ", example=" + name
				}
				res, body := ask(t, mock, r)
				n++
				if fmt.Sprint(res.StatusCode) != status {
					t.Errorf("%s, %s %s: status %d: %s", o.id, status, name, res.StatusCode, body)
					continue
				}
				if len(response.Value.Content) == 0 {
					continue
				}
				var value any
				need(t, json.Unmarshal(body, &value))
				equal(t, o.id+" "+status+" "+name, impossible("", value), nil)
			}
		}
	}
	t.Logf("Prism responded to %d requests to %d operations", n, len(g.operations))
}

// Prism, as a proxy between a client and the service, finds no violation of the
// contract.
func TestPrism_Proxy_FindsNoViolation(t *testing.T) {
	dir := t.TempDir()
	found := start(t, []string{"api: ", "token: "}, ownProgram, "dev", "--listen", "127.0.0.1:0",
		"--database-url", "sqlite:"+filepath.Join(dir, "x.db"), "--keys", filepath.Join(dir, "x.keys"))
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	proxy := prism(t, "proxy", prismDocument, found[0])
	g := &generator{hooks: &hooks{token: found[1]}, Rand: rand.New(rand.NewPCG(1, 0)), about: map[string][]string{},
		receiver: receiver.URL + "/", statuses: map[int]int{}}
	g.readOperations()
	for i := range *prismRequests {
		o := g.operations[i%len(g.operations)]
		r := g.valid(o)
		res, body := ask(t, proxy, r)
		g.statuses[res.StatusCode]++
		if violations := res.Header.Get("sl-violations"); violations != "" ||
			strings.Contains(string(body), "stoplight.io/prism") || res.StatusCode >= 500 {
			t.Errorf("%v: status %d: %s\n%.2000s", r, res.StatusCode, violations, body)
		}
		g.learn(o.id, body)
	}
	for _, status := range slices.Sorted(maps.Keys(g.statuses)) {
		t.Logf("%d: %d", status, g.statuses[status])
	}
	t.Logf("%d requests through Prism", *prismRequests)
}

// Without examples, the mock's responses contradict themselves, which must be
// found. So must a request that violates the contract.
func TestPrism_CanFail(t *testing.T) {
	g := &generator{hooks: &hooks{token: "t"}, Rand: rand.New(rand.NewPCG(1, 0))}
	get := func(server, path string) (*http.Response, []byte) {
		return ask(t, server, &generated{operation: operation{method: http.MethodGet}, path: path, token: g.hooks.token})
	}
	_, body := get(prism(t, "mock", "--ignoreExamples", prismDocument), "/api/webhooks")
	var value any
	need(t, json.Unmarshal(body, &value))
	if len(impossible("", value)) == 0 {
		t.Errorf("the mock without examples responds consistently: %s", body)
	}
	wrong := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `[{"code":7}]`)
	}))
	defer wrong.Close()
	if res, body := get(prism(t, "proxy", prismDocument, wrong.URL), "/api/currencies"); !strings.Contains(string(body),
		"stoplight.io/prism") {
		t.Errorf("the proxy forwards a wrong response: %d %v %s", res.StatusCode, res.Header, body)
	}
}

// learn records the ids in a response.
func (g *generator) learn(operation string, body []byte) {
	var one struct {
		UUID    string
		Webhook struct{ ID string }
	}
	var events []struct {
		ID  string
		Seq int64
	}
	switch {
	case operation == "createCard" && json.Unmarshal(body, &one) == nil && one.UUID != "":
		g.about["uuid"] = append(g.about["uuid"], one.UUID)
		g.about["card"] = g.about["uuid"]
	case operation == "createWebhook" && json.Unmarshal(body, &one) == nil && one.Webhook.ID != "":
		g.about["webhook_id"] = append(g.about["webhook_id"], one.Webhook.ID)
	case operation == "listEvents" && json.Unmarshal(body, &events) == nil:
		for _, e := range events {
			g.about["event_id"] = append(g.about["event_id"], e.ID)
			g.seq = max(g.seq, e.Seq)
		}
	}
}
