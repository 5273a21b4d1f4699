package server_test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
)

// Exact JSON of cards, with fields in the contract's order.
const (
	wireHead = `^\{"uuid":"([0-9a-f-]{36})","created_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)","status":"STATUS","usd_amount":USD,"payment":` +
		`\{"currency":"monero","amount":"0\.986755835301","address":"(7[1-9A-Za-z]{94})","state":"STATE","expires_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)",` +
		`"uri":"monero:(7[1-9A-Za-z]{94})\?tx_amount=0\.986755835301","amount_received":"RECEIVED","amount_due":"DUE",` +
		`"confirmations":CONFIRMATIONS,"confirmations_required":10,"rate":"152\.52"\},"credentials":`
	wireNulls  = `\{"card_number":null,"expiration_date":null,"security_code":null,"url":null,"url_password":null\},"refund_address":null,"refund":null\}\n?$`
	wireValues = `\{"card_number":"(\d{12,19})","expiration_date":"((?:0[1-9]|1[0-2])/\d\d)","security_code":"(\d{3,4})","url":"(https://[^"]+)","url_password":"([^"]+)"\},"refund_address":null,"refund":null\}\n?$`
)

func wire(pattern string, values ...string) *regexp.Regexp {
	return regexp.MustCompile(strings.NewReplacer(values...).Replace(pattern))
}

func TestCard_JSON(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		token := d.token(t)
		unpaid := []string{"STATUS", "awaiting_payment", "STATE", "unpaid", "RECEIVED", "0", "DUE", `0\.986755835301`,
			"CONFIRMATIONS", "0"}
		paid := []string{"STATUS", "generated", "STATE", "paid", "RECEIVED", `0\.986755835301`, "DUE", "0", "CONFIRMATIONS",
			"10"}
		asNumber, asString := []string{"USD", `150\.5`}, []string{"USD", `"150\.50"`}
		match := func(what string, body string, pattern *regexp.Regexp) []string {
			t.Helper()
			found := pattern.FindStringSubmatch(body)
			if found == nil {
				t.Fatalf("%s does not match %s: %s", what, pattern, body)
			}
			return found
		}

		made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("150.5")).want(t, http.StatusCreated)
		created := match("created", made.body, wire(wireHead+wireNulls, append(unpaid, asNumber...)...))
		equal(t, "Content-Type", made.header.Get("Content-Type"), "application/json")
		equal(t, "Location", made.header.Get("Location"), "/api/cards/"+created[1])
		equal(t, "address in the URI", created[5], created[3])
		at, err := time.Parse("2006-01-02T15:04:05.000Z", created[2])
		need(t, err)
		expires, err := time.Parse("2006-01-02T15:04:05.000Z", created[4])
		need(t, err)
		equal(t, "time to pay", expires.Sub(at), time.Hour)
		id, err := uuid.Parse(created[1])
		need(t, err)
		equal(t, "time in the uuid", binary.BigEndian.Uint64(id[:8])>>16, uint64(at.UnixMilli()))

		one := d.send(t, http.MethodGet, made.header.Get("Location"), token, "").want(t, http.StatusOK).body
		without := strings.Replace(one, `,"transfers":[]`, "", 1)
		match("read", without, wire(wireHead+wireNulls, append(unpaid, asString...)...))
		equal(t, "transfers of one card", len(one)-len(without), len(`,"transfers":[]`))
		list := d.send(t, http.MethodGet, "/api/cards", token, "").want(t, http.StatusOK).body
		equal(t, "list", list, "["+without+"]\n")
		page := d.send(t, http.MethodGet, "/api/cards?limit=5", token, "").want(t, http.StatusOK).body
		equal(t, "page", strings.TrimSpace(page), "["+strings.TrimSpace(without)+"]")

		payments := "/api/sandbox" + strings.TrimPrefix(made.header.Get("Location"), "/api") + "/payments"
		after := d.send(t, http.MethodPost, payments, token, "").want(t, http.StatusOK).body
		arrived := match("transfers", after,
			regexp.MustCompile(
				`,"transfers":\[\{"txid":"[0-9a-f]{64}","amount":"0\.986755835301","height":\d+,"confirmations":10,"locked":false,`+
					`"first_seen_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"\}\]`))
		without = strings.Replace(after, arrived[0], "", 1)
		generated := match("generated", without, wire(wireHead+wireValues, append(paid, asString...)...))
		equal(t, "what does not change", generated[1:6], created[1:6])
		if n := len(generated[6]); card.LuhnDigit(generated[6][:n-1]) != generated[6][n-1:] {
			t.Errorf("card number %s has a wrong check digit", generated[6])
		}
		equal(t, "read", d.send(t, http.MethodGet, made.header.Get("Location"), token, "").body, after)
		equal(t, "list", d.send(t, http.MethodGet, "/api/cards", token, "").body, "["+without+"]\n")
		equal(t, "generated", d.send(t, http.MethodGet, "/api/cards?status=generated", token, "").body, "["+without+"]\n")
		equal(t, "awaiting", d.send(t, http.MethodGet, "/api/cards?status=awaiting_payment", token, "").body, "[]\n")
	})
}

func TestCard_USDAmount_IsNumberOnlyInCreatedCard(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for _, x := range []struct{ sent, asNumber, asString string }{
		{"50", "50", `"50"`}, {"50.10", "50.1", `"50.10"`}, {"99.99", "99.99", `"99.99"`}, {"100.01", "100.01", `"100.01"`},
		{"700.00", "700", `"700"`},
	} {
		read := func(a answer) string {
			t.Helper()
			var c struct {
				USD json.RawMessage `json:"usd_amount"`
			}
			text, _ := strings.CutPrefix(strings.TrimSpace(a.body), "[")
			need(t, json.NewDecoder(strings.NewReader(text)).Decode(&c))
			return string(c.USD)
		}
		made := d.send(t, http.MethodPost, "/api/cards", token, orderBody(x.sent))
		equal(t, "created", read(made), x.asNumber)
		one := made.header.Get("Location")
		equal(t, "read", read(d.send(t, http.MethodGet, one, token, "")), x.asString)
		equal(t, "listed", read(d.send(t, http.MethodGet, "/api/cards", token, "")), x.asString)
		equal(t, "page", read(d.send(t, http.MethodGet, "/api/cards?limit=1", token, "")), x.asString)
		equal(t, "paid",
			read(d.send(t, http.MethodPost, "/api/sandbox"+strings.TrimPrefix(one, "/api")+"/payments", token, "")), x.asString)
	}
}

func TestCurrencies_HaveRateAndTime(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	a := d.send(t, http.MethodGet, "/api/currencies", d.token(t), "").want(t, http.StatusOK)
	want := `^\[\{"code":"monero","name":"Monero","decimals":12,"confirmations_required":10,"rate":"152\.52","rate_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"\}\]\n$`
	if !regexp.MustCompile(want).MatchString(a.body) {
		t.Errorf("got %s, want %s", a.body, want)
	}
}

// A quote does not change with the rate.
func TestCard_RateChanges_KeepsPrice(t *testing.T) {
	t.Parallel()
	rates := &movingRates{}
	rates.set("100")
	d := deploy(t, setup{rates: rates})
	c, made := d.create(t, "50")
	equal(t, "amount", made.Payment.Amount.String(), "0.5")
	rates.set("0.00000003")
	again, err := c.GetCard(t.Context(), made.UUID)
	need(t, err)
	equal(t, "payment", again.Payment.Amount.String()+" at "+again.Payment.Rate.String(), "0.5 at 100")
	// 50 dollars at this rate are 1,666,666,666.66 coins, too many for the
	// currency's format.
	_, err = c.CreateCard(t.Context(), client.CreateCardRequest{USDAmount: number("50"), Currency: "monero"})
	wantCode(t, err, client.ProblemCodeRateUnavailable)
}
