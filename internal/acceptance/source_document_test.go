package acceptance_test

// This file tests the service with a client that was written from the source
// document of the card service alone.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	sourceDocUUID    = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	sourceDocTime    = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$`)
	sourceDocDecimal = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

	// sourceDocCredentials holds the format of each credential; nil accepts any
	// string.
	sourceDocCredentials = map[string]*regexp.Regexp{
		"card_number":     regexp.MustCompile(`^[0-9]+$`),
		"expiration_date": regexp.MustCompile(`^(0[1-9]|1[0-2])/[0-9]{2}$`),
		"security_code":   nil,
		"url":             regexp.MustCompile(`^https?://[^/?#\s]+\S*$`),
		"url_password":    nil,
	}

	sourceDocHTTP = &http.Client{Timeout: 15 * time.Second}
)

// sourceDocService holds the URL and the token of a running service.
type sourceDocService struct{ base, token string }

// sourceDocObject is a JSON object with undecoded numbers.
type sourceDocObject = map[string]any

// startSourceDocService runs the program and stops it when t ends.
func startSourceDocService(t *testing.T) sourceDocService {
	t.Helper()
	dir := t.TempDir()
	if out, err := build(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(binary, "dev", "--listen", "127.0.0.1:0",
		"--database-url", "sqlite:"+filepath.Join(dir, "x.db"), "--keys", filepath.Join(dir, "x.keys"))
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	noSourceDocError(t, err)
	ready, exited := make(chan sourceDocService, 1), make(chan error, 1)
	go func() {
		var s sourceDocService
		for in := bufio.NewScanner(stdout); (s.base == "" || s.token == "") && in.Scan(); {
			if v, ok := strings.CutPrefix(in.Text(), "api: "); ok {
				s.base = v
			} else if v, ok := strings.CutPrefix(in.Text(), "token: "); ok {
				s.token = v
			}
		}
		if s.base != "" && s.token != "" {
			ready <- s
		}
		_, _ = io.Copy(io.Discard, stdout)
		exited <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if the service has ended, which is reported below
		select {
		case err := <-exited:
			if err != nil {
				t.Errorf("the service ended with %v, want exit code 0\n%s", err, stderr.String())
			}
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
			t.Errorf("the service did not end within 30 seconds of SIGTERM\n%s", stderr.String())
		}
	})
	select {
	case s := <-ready:
		return s
	case err := <-exited:
		exited <- err
		t.Fatalf("the service ended before it was ready: %v\n%s", err, stderr.String())
	case <-time.After(30 * time.Second):
		t.Fatal("the service printed no api and token lines within 30 seconds")
	}
	return sourceDocService{}
}

// send sends a request with exactly the given Authorization value, or without
// the header if it is empty. It labels bodies as JSON, as documented.
func (s sourceDocService) send(t *testing.T, method, path, authorization, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.base+path, strings.NewReader(body))
	noSourceDocError(t, err)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := sourceDocHTTP.Do(req)
	noSourceDocError(t, err)
	raw, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	noSourceDocError(t, err)
	return res.StatusCode, raw
}

// ok sends an authorized request that must succeed, and returns the response
// body.
func (s sourceDocService) ok(t *testing.T, method, path, body string) []byte {
	t.Helper()
	code, raw := s.send(t, method, path, "Bearer "+s.token, body)
	if code < 200 || code > 299 {
		t.Fatalf("%s %s %s: status %d, want success: %s", method, path, body, code, raw)
	}
	return raw
}

func (s sourceDocService) create(t *testing.T, body, usd string) sourceDocObject {
	t.Helper()
	before := time.Now().Add(-time.Millisecond)
	card, _ := decodeSourceDoc(t, s.ok(t, "POST", "/api/cards", body)).(sourceDocObject)
	checkSourceDocCard(t, card)
	usdAmount := card["usd_amount"]
	if n, ok := usdAmount.(json.Number); !ok || !sameSourceDocAmount(n.String(), usd) ||
		card["status"] != "awaiting_payment" {
		t.Errorf("create %s: status %v, usd_amount is %T %v, want the number %s", body, card["status"], usdAmount, usdAmount,
			usd)
	}
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(card["created_at"]))
	if err != nil || at.Before(before) || at.After(time.Now()) {
		t.Errorf("create %s: created_at %v is not the time of creation (%v)", body, card["created_at"], err)
	}
	return card
}

// list returns the listed cards by uuid, and checks each of them.
func (s sourceDocService) list(t *testing.T, query string) map[string]sourceDocObject {
	t.Helper()
	array, isArray := decodeSourceDoc(t, s.ok(t, "GET", "/api/cards"+query, "")).([]any)
	cards := map[string]sourceDocObject{}
	for _, item := range array {
		card, _ := item.(sourceDocObject)
		checkSourceDocCard(t, card)
		if usd, isString := card["usd_amount"].(string); !isString || !sourceDocDecimal.MatchString(usd) {
			t.Errorf("list %q: usd_amount is %T %v, want a number in a string", query, card["usd_amount"], card["usd_amount"])
		}
		cards[fmt.Sprint(card["uuid"])] = card
	}
	if !isArray || len(cards) != len(array) {
		t.Errorf("list %q: an array %v, %d cards, %d identifiers", query, isArray, len(array), len(cards))
	}
	return cards
}

// awaitSourceDoc calls done until it returns true. It fails the test after 30
// seconds.
func awaitSourceDoc(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatal("the paid card was not shown as generated within 30 seconds")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func noSourceDocError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// decodeSourceDoc decodes exactly one JSON value, without decoding numbers.
func decodeSourceDoc(t *testing.T, raw []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("the body is not JSON: %v: %s", err, raw)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("the body holds more than one JSON value: %s", raw)
	}
	return v
}

func sameSourceDocAmount(got, want string) bool {
	a, ok := new(big.Rat).SetString(got)
	b, ok2 := new(big.Rat).SetString(want)
	return ok && ok2 && a.Cmp(b) == 0
}

// checkSourceDocCard checks the fields of a Card in any response, and removes
// the fields that the document does not name.
func checkSourceDocCard(t *testing.T, card sourceDocObject) {
	t.Helper()
	match := func(o sourceDocObject, field string, form *regexp.Regexp) string {
		v, isString := o[field].(string)
		if !isString || v == "" || form != nil && !form.MatchString(v) {
			t.Errorf("%s is %T %#v in %v", field, o[field], o[field], card)
		}
		return v
	}
	match(card, "uuid", sourceDocUUID)
	if _, err := time.Parse(time.RFC3339Nano, match(card, "created_at", sourceDocTime)); err != nil {
		t.Errorf("created_at: %v", err)
	}
	payment, _ := card["payment"].(sourceDocObject)
	if payment["currency"] != "monero" || sameSourceDocAmount(fmt.Sprint(payment["amount"]), "0") {
		t.Errorf("payment is %v", payment)
	}
	match(payment, "amount", sourceDocDecimal)
	match(payment, "address", nil)
	credentials, _ := card["credentials"].(sourceDocObject)
	for field, form := range sourceDocCredentials {
		if card["status"] == "generated" {
			match(credentials, field, form)
		} else if v, present := credentials[field]; !present || v != nil {
			t.Errorf("credentials.%s is %#v, present %v, in status %v", field, v, present, card["status"])
		}
	}
	if card["status"] != "generated" && card["status"] != "awaiting_payment" {
		t.Errorf("status is %#v", card["status"])
	}

	// This client ignores fields that the document does not name.
	keep := func(o sourceDocObject, fields ...string) {
		maps.DeleteFunc(o, func(field string, _ any) bool { return !slices.Contains(fields, field) })
	}
	keep(card, "uuid", "created_at", "status", "usd_amount", "payment", "credentials")
	keep(payment, "currency", "amount", "address")
	keep(credentials, slices.Collect(maps.Keys(sourceDocCredentials))...)
}

// sameSourceDocCard compares a listed card with the created one, field by
// field.
func sameSourceDocCard(t *testing.T, listed, created sourceDocObject, fields ...string) {
	t.Helper()
	for _, field := range append(fields, "uuid", "created_at", "payment") {
		if !reflect.DeepEqual(listed[field], created[field]) {
			t.Errorf("%s: listed %v, created %v", field, listed[field], created[field])
		}
	}
	if !sameSourceDocAmount(fmt.Sprint(listed["usd_amount"]), fmt.Sprint(created["usd_amount"])) {
		t.Errorf("usd_amount: listed %v, created %v", listed["usd_amount"], created["usd_amount"])
	}
}

func TestSourceDocument_Client(t *testing.T) {
	t.Parallel()
	s := startSourceDocService(t)

	t.Run("EmptyListIsAnArray", func(t *testing.T) {
		for _, query := range []string{"", "?status=awaiting_payment", "?status=generated"} {
			if n := len(s.list(t, query)); n != 0 {
				t.Errorf("list %q of a new service holds %d cards", query, n)
			}
		}
	})
	t.Run("Lifecycle", func(t *testing.T) {
		unpaid := s.create(t, `{"usd_amount":"100","currency":"monero"}`, "100")
		paid := s.create(t, `{"usd_amount":250,"currency":"monero"}`, "250")
		unpaidID, paidID := fmt.Sprint(unpaid["uuid"]), fmt.Sprint(paid["uuid"])
		for _, query := range []string{"", "?status=awaiting_payment"} {
			cards := s.list(t, query)
			sameSourceDocCard(t, cards[unpaidID], unpaid, "status", "credentials")
			sameSourceDocCard(t, cards[paidID], paid, "status", "credentials")
		}
		s.ok(t, "POST", "/api/sandbox/cards/"+paidID+"/payments", "")
		awaitSourceDoc(t, func() bool { return s.list(t, "")[paidID]["status"] == "generated" })

		all, awaiting, generated := s.list(t, ""), s.list(t, "?status=awaiting_payment"), s.list(t, "?status=generated")
		sameSourceDocCard(t, all[unpaidID], unpaid, "status", "credentials")
		sameSourceDocCard(t, all[paidID], paid)
		for id, card := range all {
			if card["status"] == "awaiting_payment" && !reflect.DeepEqual(awaiting[id], card) ||
				card["status"] == "generated" && !reflect.DeepEqual(generated[id], card) {
				t.Errorf("card %s differs between the full and the narrowed list", id)
			}
		}
		if len(all) != 2 || len(awaiting) != 1 || len(generated) != 1 {
			t.Errorf("%d cards, %d awaiting payment, %d generated", len(all), len(awaiting), len(generated))
		}
	})
	t.Run("TolerantClient", func(t *testing.T) {
		type card struct {
			UUID        string `json:"uuid"`
			Credentials struct {
				Number *string `json:"card_number"`
			} `json:"credentials"`
		}
		var created card
		noSourceDocError(t, json.Unmarshal(s.ok(t, "POST", "/api/cards", `{"usd_amount":75,"currency":"monero"}`), &created))
		s.ok(t, "POST", "/api/sandbox/cards/"+created.UUID+"/payments", "")
		awaitSourceDoc(t, func() bool {
			var cards []card
			noSourceDocError(t, json.Unmarshal(s.ok(t, "GET", "/api/cards?status=generated", ""), &cards))
			return slices.ContainsFunc(cards, func(c card) bool {
				return c.UUID == created.UUID && c.Credentials.Number != nil
			})
		})
	})
	t.Run("Refusals", func(t *testing.T) {
		good, bearer := `{"usd_amount":"100","currency":"monero"}`, "Bearer "+s.token
		s.create(t, good, "100") // proves that each request below is refused for its only difference
		before := s.list(t, "")
		for _, c := range []struct{ method, authorization, body string }{
			{"GET", "", ""}, {"GET", "Bearer wrong", ""}, {"GET", bearer + "x", ""}, {"GET", s.token, ""},
			{"POST", "", good}, {"POST", "Bearer wrong", good}, {"POST", bearer + "x", good}, {"POST", s.token, good},
			{"POST", bearer, `{"usd_amount":"49","currency":"monero"}`},
			{"POST", bearer, `{"usd_amount":49,"currency":"monero"}`},
			{"POST", bearer, `{"usd_amount":"751","currency":"monero"}`},
			{"POST", bearer, `{"usd_amount":751,"currency":"monero"}`},
			{"POST", bearer, `{"usd_amount":"100","currency":"no-such-currency"}`},
			{"POST", bearer, `{"usd_amount":"100"}`},
			{"POST", bearer, `{"currency":"monero"}`},
		} {
			if code, raw := s.send(t, c.method, "/api/cards", c.authorization, c.body); code < 400 || code > 499 {
				t.Errorf("%s %s: status %d, want a refusal: %s", c.method, c.body, code, raw)
			}
		}
		if after := s.list(t, ""); !reflect.DeepEqual(after, before) {
			t.Errorf("the refused requests changed the list from %v to %v", before, after)
		}
	})
}
