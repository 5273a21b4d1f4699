package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// Tests bodies that two parsers could read differently.
func TestCreateCard_AmbiguousBody_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	deep := func(n int, inner string) string {
		return `{"usd_amount":50,"currency":"monero","x":` + strings.Repeat("[", n) + inner + strings.Repeat("]", n) + `}`
	}

	for name, body := range map[string]string{
		"a key twice":                    `{"usd_amount":50,"usd_amount":750,"currency":"monero"}`,
		"a key twice, the same value":    `{"usd_amount":50,"currency":"monero","currency":"monero"}`,
		"a key twice, once escaped":      `{"usd_amount":50,"usd_\u0061mount":750,"currency":"monero"}`,
		"a key twice, further in":        `{"usd_amount":50,"currency":"monero","x":[{"a":1,"b":{"c":1,"c":2}}]}`,
		"a key twice, both empty":        `{"usd_amount":50,"currency":"monero","":1,"":2}`,
		"keys that are lone surrogates":  `{"usd_amount":50,"currency":"monero","\ud800":1,"\udbff":2}`,
		"a lone surrogate":               `{"usd_amount":50,"currency":"monero","reference":"\ud800"}`,
		"the other half alone":           `{"usd_amount":50,"currency":"monero","reference":"a\uDE00"}`,
		"halves in the wrong order":      `{"usd_amount":50,"currency":"monero","reference":"\ude00\ud83d"}`,
		"a character between halves":     `{"usd_amount":50,"currency":"monero","reference":"\ud83d-\ude00"}`,
		"half a pair in metadata":        `{"usd_amount":50,"currency":"monero","metadata":{"a":"\ud83d\ude00\ud83d"}}`,
		"half a pair in a key":           `{"usd_amount":50,"currency":"monero","metadata":{"\\\udc00":""}}`,
		"another object behind":          orderBody("50") + `{}`,
		"the same object behind":         orderBody("50") + orderBody("50"),
		"a bracket behind":               orderBody("50") + `]`,
		"a NUL byte behind":              orderBody("50") + "\x00",
		"a comma behind":                 orderBody("50") + `,`,
		"two lines of JSON":              orderBody("50") + "\n" + orderBody("60"),
		"a comma after the last member":  `{"usd_amount":50,"currency":"monero",}`,
		"a comment":                      `{"usd_amount":50,/* or 750 */"currency":"monero"}`,
		"single quotes":                  `{'usd_amount':50,'currency':'monero'}`,
		"names without quotes":           `{usd_amount:50,currency:"monero"}`,
		"a byte order mark":              "\xef\xbb\xbf" + orderBody("50"),
		"UTF-16":                         "\xff\xfe{\x00}\x00",
		"invalid UTF-8 in a value":       "{\"usd_amount\":50,\"currency\":\"moner\xff\"}",
		"invalid UTF-8 in a key":         "{\"usd_amount\":50,\"currency\":\"monero\",\"\xc3\x28\":1}",
		"an overlong encoding":           "{\"usd_amount\":50,\"currency\":\"moner\xc1\xaf\"}",
		"a surrogate in UTF-8":           "{\"usd_amount\":50,\"currency\":\"\xed\xa0\x80\"}",
		"a control character in a value": "{\"usd_amount\":50,\"currency\":\"monero\n\"}",
		"a no-break space between":       "{\"usd_amount\":50,\u00a0\"currency\":\"monero\"}",
		"nothing":                        "",
		"only blanks":                    " \r\n\t ",
		"only a byte order mark":         "\xef\xbb\xbf",
		"half an object":                 `{"usd_amount":50,"curr`,
		"a form":                         `usd_amount=50&currency=monero`,
		"nested 33 levels deep":          deep(32, "1"),
		"nested 10 000 levels deep":      deep(10_000, ""),
		"opened 60 000 times":            strings.Repeat("[", 60_000),
		"nested objects without an end":  strings.Repeat(`{"a":`, 10_000),
	} {
		t.Run(name, func(t *testing.T) {
			d.send(t, http.MethodPost, "/api/cards", token, body, "Content-Type", "application/json").refused(t,
				http.StatusBadRequest, "malformed_json")
		})
	}

	for name, x := range map[string]struct {
		body     string
		pointers []string
	}{
		"a name in other letters": {`{"USD_AMOUNT":750,"currency":"monero"}`,
			[]string{"/USD_AMOUNT", "/usd_amount"}},
		"a name in other letters as well": {`{"usd_amount":100,"USD_AMOUNT":1,"Usd_Amount":2,"currency":"monero"}`,
			[]string{"/USD_AMOUNT", "/Usd_Amount"}},
		"a letter that folds to the same": {`{"u\u017fd_amount":100,"currency":"monero"}`,
			[]string{"/uſd_amount", "/usd_amount"}},
		"an unknown field": {`{"usd_amount":100,"currency":"monero","note":"x"}`, []string{"/note"}},
		"names that need escaping": {`{"usd_amount":100,"currency":"monero","a/b~c":1,"":2}`,
			[]string{"/a~1b~0c", "/"}},
		"fields that are the service's own": {
			`{"usd_amount":100,"currency":"monero","status":"generated","account_id":"x","address":"x","payment":{"amount_received":"1"},"credentials":{},"uuid":"x"}`, []string{"/status", "/account_id", "/address", "/payment", "/credentials", "/uuid"}},
		"an empty object":        {`{}`, []string{"/usd_amount", "/currency"}},
		"an array":               {`[]`, []string{""}},
		"the object in an array": {`[` + orderBody("50") + `]`, []string{""}},
		"null":                   {`null`, []string{""}},
		"a string":               {`"50"`, []string{""}},
		"a number":               {`50`, []string{""}},
		"nested 32 levels deep":  {deep(31, "1"), []string{"/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			d.send(t, http.MethodPost, "/api/cards", token, x.body).invalid(t, x.pointers...)
		})
	}
	equal(t, "cards", count(t, d.client(t, token)), 0)

	t.Run("surrounding blanks are accepted", func(t *testing.T) {
		d.send(t, http.MethodPost, "/api/cards", token, "\r\n\t "+orderBody("50")+" \r\n").want(t, http.StatusCreated)
	})
}

func TestCreateCard_UnknownCurrency_ListsCurrencies(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for name, sent := range map[string]string{
		"unknown":                `"dogecoin"`,
		"known but not enabled":  `"bitcoin"`,
		"empty":                  `""`,
		"a blank behind":         `"monero "`,
		"a blank in front":       `" monero"`,
		"a NUL behind":           `"monero\u0000"`,
		"other letters":          `"Monero"`,
		"the ticker":             `"XMR"`,
		"Cyrillic letters":       `"mоnеro"`,
		"a zero-width space":     `"monero\u200b"`,
		"a combining character":  `"monero\u0301"`,
		"letters of full width":  `"ｍｏｎｅｒｏ"`,
		"very long":              `"` + strings.Repeat("monero", 9_000) + `"`,
		"SQL":                    `"monero' OR '1'='1"`,
		"null":                   `null`,
		"a number":               `1`,
		"an array":               `["monero"]`,
		"an object":              `{"code":"monero"}`,
		"a string in the string": `"\"monero\""`,
	} {
		t.Run(name, func(t *testing.T) {
			p := d.send(t, http.MethodPost, "/api/cards", token, `{"usd_amount":50,"currency":`+sent+`}`).invalid(t, "/currency")
			if !strings.HasSuffix(p.Errors[0].Detail, "choose one of: monero") {
				t.Errorf("the detail lists no currencies: %q", p.Errors[0].Detail)
			}
		})
	}
	equal(t, "cards", count(t, d.client(t, token)), 0)
}
