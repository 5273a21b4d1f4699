package server_test

import (
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/client"
)

// A misread amount would sell a card at the wrong price.
func TestCreateCard_AcceptsDocumentedAmounts(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	c := d.client(t, token)

	for _, x := range []struct{ sent, created, listed string }{
		{`50`, `50`, "50"},
		{`750`, `750`, "750"},
		{`"50"`, `50`, "50"},
		{`"750"`, `750`, "750"},
		{`100`, `100`, "100"},
		{`"100"`, `100`, "100"},
		{`50.0`, `50`, "50"},
		{`"50.0"`, `50`, "50"},
		{`50.00`, `50`, "50"},
		{`"750.00"`, `750`, "750"},
		{`50.01`, `50.01`, "50.01"},
		{`"749.99"`, `749.99`, "749.99"},
		{`150.5`, `150.5`, "150.50"},
		{`"150.50"`, `150.5`, "150.50"},
		{`"0050"`, `50`, "50"}, // the contract's pattern allows leading zeros
		{`"000000750.00"`, `750`, "750"},
		{`"\u0031\u00300"`, `100`, "100"},
		{`"150.000"`, `150`, "150"}, // the form of decimals in SQL and C#
		{`50.000`, `50`, "50"},
		{`749.990`, `749.99`, "749.99"},
		{`"749.9900"`, `749.99`, "749.99"},
		{`"150.5000000000000000000000000000"`, `150.5`, "150.50"},
		{`150.5000000000000000000000000000`, `150.5`, "150.50"},
	} {
		t.Run("accepted "+x.sent, func(t *testing.T) {
			a := d.send(t, http.MethodPost, "/api/cards", token, orderBody(x.sent)).want(t, http.StatusCreated)
			var got struct {
				UUID      string
				USDAmount json.RawMessage `json:"usd_amount"`
			}
			need(t, json.Unmarshal([]byte(a.body), &got))
			equal(t, "created", string(got.USDAmount), x.created)
			a = d.send(t, http.MethodGet, "/api/cards/"+got.UUID, token, "").want(t, http.StatusOK)
			need(t, json.Unmarshal([]byte(a.body), &got))
			equal(t, "read", string(got.USDAmount), `"`+x.listed+`"`)
		})
	}
	made := count(t, c)

	for _, sent := range []string{
		`49`, `49.99`, `750.01`, `751`, `0`, `-1`, `-0`, `-50`, `-100.5`,
		`1e2`, `1E2`, `5e1`, `0.5e3`, `500e-1`, `1e400`, `-1e400`, `1e-400`,
		`100.005`, `749.999`, `100.0050`, `150.00e0`, `100.0000000000000000001`, `49.99999999999999999999`,
		`750.00000000000000000001`,
		`99999999999999999999`, `18446744073709551666`, `1000000000`,
		`""`, `" 50"`, `"50 "`, `"5 0"`, `"\t50"`, `"50\n"`, `"50\u0000"`, `"+50"`, `"-50"`, `"1e2"`, `"5E1"`, `"0x64"`,
		`"0b1100100"`,
		`"5_0"`, `"50,00"`, `"1,00"`, `"100.005"`, `"749.999"`, `"100.0050"`, `"150.00e0"`, `"50."`, `".5"`, `"."`,
		`"50.0.0"`, `"$50"`, `"50 USD"`,
		`"49.99"`, `"750.01"`, `"0"`, `"0000000050"`, `"18446744073709551666"`, `"NaN"`, `"Infinity"`, `"nan"`,
		`"٥٠"`, `"５０"`, `"50\u200b"`, `"null"`, `"true"`, `"\"50\""`,
		`null`, `true`, `false`, `[]`, `[50]`, `["50"]`, `{}`, `{"amount":50}`,
	} {
		t.Run("refused "+sent, func(t *testing.T) {
			d.send(t, http.MethodPost, "/api/cards", token, orderBody(sent)).invalid(t, "/usd_amount")
		})
	}
	for _, sent := range []string{`NaN`, `Infinity`, `-Infinity`, `+50`, `050`, `.5`, `50.`, `0x32`, `5_0`, `50 0`,
		`1,000`, `'50'`, `"50`, `fifty`, `undefined`, `-`, `1e`, ``, `"\ud800"`} {
		t.Run("malformed "+sent, func(t *testing.T) {
			d.send(t, http.MethodPost, "/api/cards", token, orderBody(sent)).refused(t, http.StatusBadRequest, "malformed_json")
		})
	}
	equal(t, "cards after the refusals", count(t, c), made)
}

// Checks the accepted amounts and the price against an independent parser.
func FuzzCreateCard_AmountEqualsOracle(f *testing.F) {
	for _, seed := range []string{
		"50", "750", "49.99", "50.00", "50.001", "750.00", "750.01", "0050", "1e2", "5E1", "-50", "+50", " 50", "50 ", "",
		".", "5.", ".5",
		"100.005", "123456789", "1234567890", "000000050.5", "0000000050", "1_00", "0x64", "NaN", "50,5", "50.0.0", "100.5",
		"99999999999999999999", "150.000", "749.990", "749.999",
	} {
		f.Add(seed)
	}
	d := deploy(f, setup{})
	token := d.token(f)
	f.Fuzz(func(t *testing.T, text string) {
		asString, err := json.Marshal(text)
		need(t, err)
		var read string
		need(t, json.Unmarshal(asString, &read)) // invalid UTF-8 was replaced
		checkAmount(t, d, token, string(asString), read, 9)
		if json.Valid([]byte(text)) && strings.Trim(text, "-+.0123456789eE") == "" {
			checkAmount(t, d, token, text, text, len(text))
		}
	})
}

func checkAmount(t *testing.T, d *deployment, token, sent, text string, wholeDigits int) {
	t.Helper()
	a := d.serve(t, http.MethodPost, "/api/cards", token, orderBody(sent))
	if a.status == http.StatusServiceUnavailable { // the addresses are used up
		d.work()
		a = d.serve(t, http.MethodPost, "/api/cards", token, orderBody(sent))
	}
	usd, allowed := allowedAmount(text, wholeDigits)
	if !allowed {
		a.invalid(t, "/usd_amount")
		return
	}
	var card client.Card
	need(t, json.Unmarshal([]byte(a.want(t, http.StatusCreated).body), &card))
	if card.USDAmount.Rat().Cmp(usd) != 0 {
		t.Errorf("%s was read as %s", sent, card.USDAmount)
	}
	rate, unit := card.Payment.Rate.Rat(), big.NewRat(1, 1e12)
	price := card.Payment.Amount.Rat()
	if worth := new(big.Rat).Mul(price, rate); worth.Cmp(usd) < 0 {
		t.Errorf("%s is sold for %s, which is worth less", sent, card.Payment.Amount)
	}
	if less := price.Sub(price, unit); less.Mul(less, rate).Cmp(usd) >= 0 {
		t.Errorf("%s costs %s, more than the smallest sufficient amount", sent, card.Payment.Amount)
	}
}

// allowedAmount returns the amount that a text denotes, if the contract allows
// it.
func allowedAmount(text string, wholeDigits int) (*big.Rat, bool) {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && c != '.' {
			return nil, false
		}
	}
	parts := strings.Split(text, ".")
	if len(parts) > 2 || parts[0] == "" || len(parts[0]) > wholeDigits || parts[len(parts)-1] == "" || len(parts) == 2 &&
		len(strings.TrimRight(parts[1], "0")) > 2 {
		return nil, false
	}
	usd, ok := new(big.Rat).SetString(text)
	return usd, ok && usd.Cmp(big.NewRat(50, 1)) >= 0 && usd.Cmp(big.NewRat(750, 1)) <= 0
}

// count returns how many cards an account has.
func count(t testing.TB, c *client.Client) int {
	t.Helper()
	n := 0
	for _, err := range c.ListCards(t.Context(), client.ListCardsOptions{}) {
		need(t, err)
		n++
	}
	return n
}
