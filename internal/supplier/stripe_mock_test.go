package supplier_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/rig"
	"github.com/cardmint/cardmint/internal/supplier"
)

// stripe-mock checks requests against Stripe's specification, and answers with
// examples: every card is the same, without a number.
func TestStripe_Requests_MatchSpecification(t *testing.T) {
	mock, err := url.Parse(startStripeMock(t))
	if err != nil {
		t.Fatal(err)
	}
	r := ordered()
	var seen []string
	proxy := httputil.NewSingleHostReverseProxy(mock)
	proxy.ModifyResponse = func(res *http.Response) error {
		body, err := io.ReadAll(res.Body)
		path := regexp.MustCompile(`/ich?_[A-Za-z0-9]+`).ReplaceAllString(res.Request.URL.Path, "/{id}")
		seen = append(seen, res.Request.Method+" "+path+" "+res.Status)
		if err == nil && strings.HasSuffix(path, "/cards/{id}") { // the example contains no order
			body, err = claim(body, r.Key)
		}
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		res.Header.Del("Content-Length")
		return err
	}
	front := httptest.NewServer(proxy)
	defer front.Close()
	s, err := supplier.NewStripe(
		supplier.StripeConfig{Key: "rk_test_123", Cardholder: holder, URL: front.URL, Insecure: true,
			Page: "https://cards.example", PageSecret: pageSecret})
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Submit(t.Context(), r)
	if err != nil || a.Outcome != issue.Issued || a.Flaw == "" || a.Reference == "" {
		t.Errorf("submitted: %+v, %v", a, err)
	}
	want(t, s.Lookup, r, issue.Unknown) // by the cards' metadata
	r.Reference = a.Reference
	want(t, s.Cancel, r, issue.Declined)
	if _, err := s.Offers(t.Context()); err == nil || err.Error() != "stripe: balance: the answer has no Issuing balance" {
		t.Errorf("offers: %v", err)
	}
	if diff := cmp.Diff([]string{
		"POST /v1/issuing/cards 200 OK", "GET /v1/issuing/cards/{id} 200 OK",
		"GET /v1/issuing/cards 200 OK",
		"GET /v1/issuing/cards/{id} 200 OK", "POST /v1/issuing/cards/{id} 200 OK",
		"GET /v1/issuing/cardholders/{id} 200 OK", "GET /v1/balance 200 OK",
	}, seen); diff != "" {
		t.Error(diff)
	}
}

// claim sets the metadata of a card to an order.
func claim(text []byte, key string) ([]byte, error) {
	var c map[string]any
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	c["metadata"] = map[string]string{"cardmint_key": key}
	return json.Marshal(c)
}

// startStripeMock starts stripe-mock on free ports, and returns its address.
func startStripeMock(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: builds stripe-mock")
	}
	path, err := exec.Command("go", "tool", "-modfile=../../tools/stripe-mock/go.mod", "-n", "stripe-mock").Output()
	if err != nil {
		t.Fatalf("build stripe-mock: %v", err)
	}
	cmd := exec.Command(strings.TrimSpace(string(path)), "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	mock := rig.Start(t, cmd)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, is := strings.CutPrefix(lines.Text(), "Listening for HTTP at address: "); is {
			return "http://" + address
		}
	}
	t.Fatalf("stripe-mock does not log its address: %s", mock.Output())
	return ""
}
