package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/openapi"
	"github.com/cardmint/cardmint/server"
)

func TestLivez_HasNoConditions(t *testing.T) {
	t.Parallel()
	d := deploy(t,
		setup{checks: map[string]func(context.Context) error{
			"database": func(context.Context) error { return errors.New("down") }}})
	need(t, d.store.Close())
	a := d.send(t, http.MethodGet, "/livez", "", "").want(t, http.StatusOK)
	equal(t, "body", a.body, `{"status":"ok"}`)
}

func TestReadyz_ListsFailures_ShowsOnlyPublicReasons(t *testing.T) {
	t.Parallel()
	well := func(context.Context) error { return nil }
	ill := func(context.Context) error { return errors.New("dial postgres://cardmint:s3cret@10.0.0.1") }
	for _, x := range []struct {
		name   string
		checks map[string]func(context.Context) error
		status int
		body   string
	}{
		{"nothing to check", nil, http.StatusOK, `{"status":"ready"}`},
		{"all well", map[string]func(context.Context) error{
			"database": well, "watch monero": well}, http.StatusOK, `{"status":"ready"}`},
		{"one fails", map[string]func(context.Context) error{
			"database": well, "watch monero": ill}, http.StatusServiceUnavailable,
			`{"failing":["watch monero"],"status":"not ready"}`},
		{"one says why", map[string]func(context.Context) error{"rates": func(context.Context) error {
			return fmt.Errorf("%w: %w", card.Unready("monero: 1 of 2 sources"), errors.New("dial 10.0.0.1"))
		}}, http.StatusServiceUnavailable,
			`{"failing":["rates"],"reasons":{"rates":"monero: 1 of 2 sources"},"status":"not ready"}`},
		{"two fail", map[string]func(context.Context) error{"b": ill, "c": well, "a": ill}, http.StatusServiceUnavailable,
			`{"failing":["a","b"],"status":"not ready"}`},
	} {
		t.Run(x.name, func(t *testing.T) {
			d := deploy(t, setup{checks: x.checks})
			a := d.send(t, http.MethodGet, "/readyz", "", "").want(t, x.status)
			equal(t, "body", a.body, x.body)
			equal(t, "asks to try again", a.header.Get("Retry-After") != "", x.status != http.StatusOK)
		})
	}
}

// A failing coin is listed, and the process stays ready while another coin
// works.
func TestReadyz_OneCoinPasses_IsReady(t *testing.T) {
	t.Parallel()
	well := func(context.Context) error { return nil }
	ill := func(context.Context) error { return card.Unready("node or wallet is not ready") }
	for _, x := range []struct {
		name                            string
		database, rates, watch, another func(context.Context) error
		status                          int
		body                            string
	}{
		{"all well", well, well, well, well, http.StatusOK, `{"status":"ready"}`},
		{"one is ill", well, well, ill, well, http.StatusOK,
			`{"failing":["watch monero"],"reasons":{"watch monero":"node or wallet is not ready"},"status":"ready"}`},
		{"ill in two ways", well, ill, ill, well, http.StatusOK, `{"failing":["rates monero","watch monero"],` +
			`"reasons":{"rates monero":"node or wallet is not ready","watch monero":"node or wallet is not ready"},"status":"ready"}`},
		{"ill in the first way only", well, ill, well, ill, http.StatusServiceUnavailable,
			`{"failing":["rates monero","watch litecoin"],` +
				`"reasons":{"rates monero":"node or wallet is not ready","watch litecoin":"node or wallet is not ready"},"status":"not ready"}`},
		{"the database is ill", ill, well, well, well, http.StatusServiceUnavailable,
			`{"failing":["database"],"reasons":{"database":"node or wallet is not ready"},"status":"not ready"}`},
	} {
		t.Run(x.name, func(t *testing.T) {
			handler, err := server.New(
				server.Config{
					Checks: []server.Check{{Name: "database", Run: x.database}, {Name: "rates monero", Coin: "monero", Run: x.rates},
						{Name: "watch monero", Coin: "monero", Run: x.watch},
						{Name: "watch litecoin", Coin: "litecoin", Run: x.another}}})
			need(t, err)
			a := (&deployment{handler: handler}).serve(t, http.MethodGet, "/readyz", "", "").want(t, x.status)
			equal(t, "body", a.body, x.body)
		})
	}
}

// A hanging check must not block the response: an orchestrator would restart
// the process.
func TestReadyz_CheckHangs_TimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler, err := server.New(server.Config{Checks: []server.Check{
			{Name: "hangs", Run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		}})
		need(t, err)
		d, start := &deployment{handler: handler}, time.Now()
		a := d.serve(t, http.MethodGet, "/readyz", "", "").want(t, http.StatusServiceUnavailable)
		equal(t, "body", a.body, `{"failing":["hangs"],"status":"not ready"}`)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Probes need no token, so a flood of them must not flood the database.
func TestReadyz_ConcurrentRequests_ShareOneProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		handler, err := server.New(server.Config{Checks: []server.Check{{Name: "slow", Run: func(context.Context) error {
			asked++
			time.Sleep(time.Second)
			return card.Unready("slow")
		}}}})
		need(t, err)
		d, all := &deployment{handler: handler}, sync.WaitGroup{}
		for range 50 {
			all.Go(func() {
				a := d.serve(t, http.MethodGet, "/readyz", "", "").want(t, http.StatusServiceUnavailable)
				equal(t, "body", a.body, `{"failing":["slow"],"reasons":{"slow":"slow"},"status":"not ready"}`)
			})
		}
		all.Wait()
		equal(t, "times asked", asked, 1)
		d.serve(t, http.MethodGet, "/readyz", "", "")
		equal(t, "times asked after that", asked, 2)
	})
}

func TestReadyz_FollowsTheDatabase(t *testing.T) {
	t.Parallel()
	var d *deployment
	d = deploy(t,
		setup{checks: map[string]func(context.Context) error{
			"database": func(ctx context.Context) error { return d.store.Ping(ctx) }}})
	d.send(t, http.MethodGet, "/readyz", "", "").want(t, http.StatusOK)
	need(t, d.store.Close())
	a := d.send(t, http.MethodGet, "/readyz", "", "").want(t, http.StatusServiceUnavailable)
	equal(t, "body", a.body, `{"failing":["database"],"status":"not ready"}`)
}

// A worker has no API, and so no paths to protect.
func TestWorker_ServesOnlyHealth(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{noService: true})
	for _, path := range []string{"/livez", "/readyz"} {
		d.send(t, http.MethodGet, path, "", "").want(t, http.StatusOK)
	}
	token := d.token(t)
	for _, path := range []string{"/api/nothing", "/docs", "/"} {
		d.send(t, http.MethodGet, path, token, "").refused(t, http.StatusNotFound, "not_found")
	}
	for _, path := range []string{"/api/cards", "/api/currencies", "/openapi.yaml", "/openapi.json"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.web.URL+path, nil)
		need(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := d.web.Client().Do(r) // not validated: a worker does not serve the contract
		need(t, err)
		need(t, res.Body.Close())
		equal(t, path, res.StatusCode, http.StatusNotFound)
	}
}

// withoutDefaults removes values that equal the default.
func withoutDefaults(document any) {
	switch v := document.(type) {
	case map[string]any:
		if v["required"] == false {
			delete(v, "required")
		}
		for _, x := range v {
			withoutDefaults(x)
		}
	case []any:
		for _, x := range v {
			withoutDefaults(x)
		}
	}
}

// The YAML and JSON forms must be the same contract.
func TestSpec_YAMLAndJSONAreEqual(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	inYAML := d.send(t, http.MethodGet, "/openapi.yaml", "", "").want(t, http.StatusOK)
	inJSON := d.send(t, http.MethodGet, "/openapi.json", "", "").want(t, http.StatusOK)
	equal(t, "published", inYAML.body, string(openapi.Published))
	equal(t, "Content-Type", []string{inYAML.header.Get("Content-Type"), inJSON.header.Get("Content-Type")},
		[]string{"application/yaml", "application/json"})

	want, err := openapi3filter.YamlBodyDecoder(strings.NewReader(inYAML.body), http.Header{}, nil, nil)
	need(t, err)
	normal, err := json.Marshal(want) // converts numbers as JSON does
	need(t, err)
	var fromYAML, fromJSON any
	need(t, json.Unmarshal(normal, &fromYAML))
	need(t, json.Unmarshal([]byte(inJSON.body), &fromJSON))
	withoutDefaults(fromYAML)
	equal(t, "openapi.json", fromJSON, fromYAML)

	doc, err := openapi3.NewLoader().LoadFromData([]byte(inJSON.body))
	need(t, err)
	need(t, doc.Validate(t.Context()))
}
