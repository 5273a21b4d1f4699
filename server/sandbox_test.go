package server_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

// pay is a simulated payment; an empty amount and negative confirmations are
// omitted from the request.
func pay(amount string, confirmations int32) client.SimulatePaymentRequest {
	var r client.SimulatePaymentRequest
	if amount != "" {
		exact := number(amount)
		r.Amount = &exact
	}
	if confirmations >= 0 {
		r.Confirmations = &confirmations
	}
	return r
}

// progress is the progress of a payment.
type progress struct {
	Status        client.CardStatus
	State         client.PaymentState
	Received, Due string
	Confirmations int64
	Credentials   bool
}

func progressOf(c *client.Card) progress {
	return progress{c.Status, c.Payment.State, c.Payment.AmountReceived.String(), c.Payment.AmountDue.String(),
		c.Payment.Confirmations, c.Credentials != client.Credentials{}}
}

func TestGetCard_ListsTransfers(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	c, made := d.create(t, "150")
	before := time.Now().Add(-time.Minute)
	for _, step := range []client.SimulatePaymentRequest{pay("0.25", 3), pay("0.000000000001", 0)} {
		_, err := c.SimulatePayment(t.Context(), made.UUID, step)
		need(t, err)
	}
	got, err := c.GetCard(t.Context(), made.UUID)
	need(t, err)
	if len(got.Payment.Transfers) != 2 || got.Payment.TransfersOmitted != 0 {
		t.Fatalf("transfers: %+v", got.Payment.Transfers)
	}
	for i, want := range []struct {
		amount        string
		mined         bool
		confirmations int64
	}{{"0.25", true, 3}, {"0.000000000001", false, 0}} {
		x := got.Payment.Transfers[i]
		if x.Amount.String() != want.amount || (x.Height != 0) != want.mined || x.Confirmations != want.confirmations ||
			x.Locked || x.TxID == "" ||
			x.FirstSeenAt.Before(before) {
			t.Errorf("transfer %d is %+v, want %+v", i, x, want)
		}
	}
	for listed, err := range c.ListCards(t.Context(), client.ListCardsOptions{}) {
		need(t, err)
		if listed.Payment.Transfers != nil {
			t.Error("the list includes transfers")
		}
	}
}

func TestSimulatePayment_PaymentStates(t *testing.T) {
	t.Parallel()
	const awaiting, generated = client.CardStatusAwaitingPayment, client.CardStatusGenerated
	const price, half, rest = "0.983477576712", "0.5", "0.483477576712" // of 150 dollars
	d := deploy(t, setup{})
	for _, x := range []struct {
		name  string
		steps []client.SimulatePaymentRequest
		want  []progress
	}{
		{"all at once", []client.SimulatePaymentRequest{{}}, []progress{{generated, "paid", price, "0", 10, true}}},
		{"twice all, by mistake", []client.SimulatePaymentRequest{{}, {}},
			[]progress{{generated, "paid", price, "0", 10, true}, {generated, "paid", price, "0", 10, true}}},
		{"in two pieces", []client.SimulatePaymentRequest{pay(half, -1), pay(rest, -1)},
			[]progress{{awaiting, "underpaid", half, rest, 10, false}, {generated, "paid", price, "0", 10, true}}},
		{"too little, then what is due", []client.SimulatePaymentRequest{pay("0.983477576711", -1), {}},
			[]progress{{awaiting, "underpaid", "0.983477576711", "0.000000000001", 10, false},
				{generated, "paid", price, "0", 10, true}}},
		{"mempool, then a block, then enough",
			[]client.SimulatePaymentRequest{pay("", 0), pay("", 1), pay("", 9), pay("", 10)},
			[]progress{{awaiting, "detected", price, "0", 0, false}, {awaiting, "confirming", price, "0", 1, false},
				{awaiting, "confirming", price, "0", 9, false}, {generated, "paid", price, "0", 10, true}}},
		{"mempool, then all that is needed", []client.SimulatePaymentRequest{pay("", 0), {}},
			[]progress{{awaiting, "detected", price, "0", 0, false}, {generated, "paid", price, "0", 10, true}}},
		{"the second piece holds up the first", []client.SimulatePaymentRequest{pay(half, -1), pay(rest, 0), pay("", 2)},
			[]progress{{awaiting, "underpaid", half, rest, 10, false}, {awaiting, "detected", price, "0", 0, false},
				{awaiting, "confirming", price, "0", 2, false}}},
		{"too much", []client.SimulatePaymentRequest{pay("2", -1)}, []progress{{generated, "paid", "2", "0", 10, true}}},
		{"more after it was paid", []client.SimulatePaymentRequest{{}, pay("1.5", -1)},
			[]progress{{generated, "paid", price, "0", 10, true}, {generated, "paid", "2.483477576712", "0", 20, true}}},
		{"the smallest unit", []client.SimulatePaymentRequest{pay("0.000000000001", 0)},
			[]progress{{awaiting, "underpaid", "0.000000000001", "0.983477576711", 0, false}}},
		{"more confirmations than needed", []client.SimulatePaymentRequest{pay("", 1000)},
			[]progress{{generated, "paid", price, "0", 1000, true}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, made := d.create(t, "150")
			for i, step := range x.steps {
				after, err := c.SimulatePayment(t.Context(), made.UUID, step)
				need(t, err)
				equal(t, "step", progressOf(after), x.want[i])
				again, err := c.GetCard(t.Context(), made.UUID)
				need(t, err)
				equal(t, "read again", again, after)
			}
		})
	}
}

// Repeated payments issue one card.
func TestSimulatePayment_Repeated_IssuesOneCard(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, database string) {
		d := deploy(t, setup{database: database})
		c, made := d.create(t, "50")
		var credentials [8]client.Credentials
		var group sync.WaitGroup
		for i := range credentials {
			group.Go(func() {
				after, err := c.SimulatePayment(t.Context(), made.UUID, pay("0.4", -1))
				if err != nil {
					t.Error(err)
					return
				}
				credentials[i] = after.Credentials
			})
		}
		group.Wait()
		for _, got := range credentials {
			if got != credentials[0] || got == (client.Credentials{}) {
				t.Errorf("the credentials changed, or are missing")
			}
		}
		after, err := c.GetCard(t.Context(), made.UUID)
		need(t, err)
		equal(t, "after eight payments", progressOf(after),
			progress{client.CardStatusGenerated, "paid", "3.2", "0", after.Payment.Confirmations, true})
	})
}

func TestSimulatePayment_BodyIsOptional(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	for _, x := range []struct{ body, kind string }{
		{"", absent}, {"", "application/json"}, {"", "text/plain"}, {"{}", "application/json"}, {"{}", absent}} {
		made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"))
		a := d.send(t, http.MethodPost, paymentsOf(made), token, x.body, "Content-Type", x.kind).want(t, http.StatusOK)
		if !strings.Contains(a.body, `"status":"generated"`) {
			t.Errorf("%q %q: %s", x.body, x.kind, a.body)
		}
	}
}

// A client that streams its body does not know in advance that it is empty.
func TestSimulatePayment_ChunkedEmptyBody_IsAccepted(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"))
	head := "Host: x\r\nAuthorization: Bearer " + token + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	d.speak(t, d.address(), "POST "+paymentsOf(made)+" HTTP/1.1\r\n"+head).want(t, http.StatusOK)
	// An operation that requires a body still rejects an empty one.
	d.speak(t, d.address(), "POST /api/cards HTTP/1.1\r\n"+head).refused(t, http.StatusBadRequest, "malformed_json")
}

func paymentsOf(made answer) string {
	return "/api/sandbox" + strings.TrimPrefix(made.header.Get("Location"), "/api") + "/payments"
}

func TestSimulatePayment_InvalidPayment_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"))
	for _, amount := range []string{
		`"0"`, `"0.000000000000"`, `"-1"`, `"+1"`, `"1e3"`, `"0x1"`, `""`, `" 1"`, `"1 "`, `"1."`, `".5"`, `"1,5"`, `"1_0"`,
		`"NaN"`, `"Infinity"`, `"0.0000000000001"`,
		`"10000000"`, `"99999999999999999999"`, `"0.00000000000010"`, `"١"`, `1`, `0.5`, `null`, `true`, `[]`, `{}`, `["1"]`,
	} {
		t.Run("amount "+amount, func(t *testing.T) {
			d.send(t, http.MethodPost, paymentsOf(made), token, `{"amount":`+amount+`}`).invalid(t, "/amount")
		})
	}
	for _, n := range []string{`-1`, `1001`, `1.5`, `"1"`, `""`, `null`, `true`, `[]`, `{}`, `1e400`} {
		t.Run("confirmations "+n, func(t *testing.T) {
			d.send(t, http.MethodPost, paymentsOf(made), token, `{"confirmations":`+n+`}`).invalid(t, "/confirmations")
		})
	}
	for _, body := range []string{`{"amount":"1","amount":"2"}`, `{"amount":"1"}{}`, "\xef\xbb\xbf{}", `{`,
		"{\"amount\":\"\xff\"}", strings.Repeat("[", 20_000), " "} {
		d.send(t, http.MethodPost, paymentsOf(made), token, body).refused(t, http.StatusBadRequest, "malformed_json")
	}
	d.send(t, http.MethodPost, paymentsOf(made), token, `{"AMOUNT":"1","confirmations":0}`).invalid(t, "/AMOUNT")
	d.send(t, http.MethodPost, paymentsOf(made), token, `[]`).invalid(t, "")
	d.send(t, http.MethodPost, paymentsOf(made), token, `{}`, "Content-Type", "text/plain").refused(t,
		http.StatusUnsupportedMediaType, "unsupported_media_type")
	d.send(t, http.MethodPost, paymentsOf(made), token, `{}`+strings.Repeat(" ", maxBody)).refused(t,
		http.StatusRequestEntityTooLarge, "body_too_large")
	if after := d.send(t, http.MethodGet, made.header.Get("Location"), token, "").body; !strings.Contains(after,
		`"amount_received":"0"`) {
		t.Errorf("a payment was made: %s", after)
	}
}

func TestSimulatePayment_TrailingZeros_DoNotCountAsDecimals(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"))
	for _, body := range []string{`{"amount":"0.1000000000000000000","confirmations":0}`,
		`{"amount":"0.100000000001000","confirmations":0}`} {
		d.send(t, http.MethodPost, paymentsOf(made), token, body).want(t, http.StatusOK)
	}
	if after := d.send(t, http.MethodGet, made.header.Get("Location"), token, "").body; !strings.Contains(after,
		`"amount_received":"0.200000000001"`) {
		t.Errorf("0.100000000000 and 0.100000000001 were paid: %s", after)
	}
}

// A value that matches the schema but no Go field must not become a payment of
// the default amount.
func TestSimulatePayment_BodyDoesNotBind_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50"))
	for _, body := range []string{
		`{"amount":"9999999999999999999"}`, `{"amount":"9223372.036854775808"}`,
		`{"amount":"9223372.036854775808000","confirmations":0}`,
		`{"amount":"0.01","confirmations":10.0}`, `{"confirmations":1e1}`,
	} {
		t.Run(body, func(t *testing.T) {
			d.send(t, http.MethodPost, paymentsOf(made), token, body).refused(t, http.StatusUnprocessableEntity,
				"invalid_request")
		})
	}
	if after := d.send(t, http.MethodGet, made.header.Get("Location"), token, "").body; !strings.Contains(after,
		`"amount_received":"0"`) {
		t.Errorf("a payment was made: %s", after)
	}
}

func TestSimulatePayment_RealChain_IsRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{sandbox: map[string]order.Sandbox{}})
	c, made := d.create(t, "50")
	_, err := c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{})
	wantCode(t, err, client.ProblemCodeNotFound)

	d = deploy(t, setup{sandbox: map[string]order.Sandbox{"bitcoin": nil}}) // only another currency is simulated
	c, made = d.create(t, "50")
	_, err = c.SimulatePayment(t.Context(), made.UUID, client.SimulatePaymentRequest{})
	wantCode(t, err, client.ProblemCodeNotFound)
}

// wantCode fails the test unless err is the service's refusal with this code.
func wantCode(t testing.TB, err error, code client.ProblemCode) {
	t.Helper()
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

// movingRates are rates that a test sets.
type movingRates struct{ usd atomic.Pointer[card.Decimal] }

func (r *movingRates) set(usd string) {
	exact, err := card.ParseDecimal(usd, card.RateScale)
	if err != nil {
		panic(err)
	}
	r.usd.Store(&exact)
}

func (r *movingRates) Rate(string) (card.Rate, error) {
	return card.Rate{USD: *r.usd.Load(), Source: "test"}, nil
}
