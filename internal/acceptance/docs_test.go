package acceptance_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Only dev may show a token in the page.
func TestDocs_OnlyDev_OffersToken(t *testing.T) {
	skipIfShort(t)
	read := func(url string) string {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 500 {
			t.Fatalf("%s: %d, %v", url, res.StatusCode, err)
		}
		return string(text)
	}
	dev := newProgram(t, "").serve(t, "dev")
	if page := read(dev.url + "/"); !strings.Contains(page, "<h1") || !strings.Contains(page, "/docs/reference") {
		t.Errorf("the root URL does not show the documentation: %.200s", page)
	}
	if !strings.Contains(read(dev.url+"/docs/reference"), `name="cardmint-token" content="cm_test_`) {
		t.Error("the page of dev does not show its token")
	}
	var refused struct{ Type, Code string }
	if err := json.Unmarshal([]byte(read(dev.url+"/api/cards")), &refused); err != nil {
		t.Fatal(err)
	}
	page, anchor, _ := strings.Cut(refused.Type, "#")
	if page != dev.url+"/docs/errors" || anchor != "unauthorized" || !strings.Contains(read(page), `id="`+anchor+`"`) {
		t.Errorf("the type of an error is %s", refused.Type)
	}

	p := newProgram(t, "")
	token := p.account(t)
	shop := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	if page := read(shop.url + "/docs/reference"); !strings.Contains(page, "<h1") || strings.Contains(page, token) ||
		strings.Contains(page, "cardmint-token") || strings.Contains(page, "cm_test_") {
		t.Errorf("reference page of serve: %.200s", page)
	}
}
