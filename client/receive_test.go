package client

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

const (
	otherSecret Secret = "whsec_bmV3IHNlY3JldCBvZiB0aGlydHktdHdvIGJ5dGVzISE="
	testPayload        = `{"type":"card.generated","timestamp":"2026-11-20T15:06:00.120Z","seq":42,"card_uuid":"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88","status":"generated","payment_state":"paid"}`
)

// signed is the header of a request with this payload, signed by each of the
// secrets.
func signed(t testing.TB, at time.Time, id, payload string, secrets ...Secret) http.Header {
	t.Helper()
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	var signatures []string
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), "whsec_"))
		if err != nil {
			t.Fatal(err)
		}
		signatures = append(signatures, webhookSignature(key, id, at.Unix(), []byte(payload)))
	}
	h.Set("webhook-signature", strings.Join(signatures, " "))
	return h
}

// The vector that the libraries of Standard Webhooks share.
func TestParseWebhook_KnownAnswer(t *testing.T) {
	const (
		id        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
		payload   = `{"test": 2432232314}`
		signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	)
	at := time.Unix(1614265330, 0)
	h := signed(t, at, id, payload, testSecret)
	if got := h.Get("webhook-signature"); got != signature {
		t.Fatalf("we sign %s, the specification %s", got, signature)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(at))
		// The signature is good; the rest is not an event's.
		if _, err := ParseWebhook([]byte(payload), h, testSecret); !errors.Is(err, ErrWebhookPayload) {
			t.Error(err)
		}
		if _, err := ParseWebhook([]byte(payload+" "), h, testSecret); !errors.Is(err, ErrWebhookSignature) {
			t.Error(err)
		}
	})
}

func TestParseWebhook_ReadsTheEvent(t *testing.T) {
	at := time.Date(2026, 11, 20, 15, 6, 0, 120_000_000, time.UTC)
	for name, tc := range map[string]struct {
		payload string
		want    Event
	}{
		"of a card": {testPayload, Event{ID: eventID, Type: EventTypeCardGenerated, Timestamp: at, Seq: 42, CardUUID: testID,
			Status: CardStatusGenerated, PaymentState: PaymentStatePaid}},
		"of a webhook": {`{"type":"webhook.disabled","timestamp":"2026-11-20T15:06:00.120Z","seq":43,"webhook_id":"` +
			hookID.String() + `"}`,
			Event{ID: eventID, Type: EventTypeWebhookDisabled, Timestamp: at, Seq: 43, WebhookID: hookID}},
		"example": {`{"type":"card.generated","timestamp":"2026-11-20T15:06:00.120Z","seq":0}`,
			Event{ID: eventID, Type: EventTypeCardGenerated, Timestamp: at}},
		"of the future": {
			`{"type":"card.frozen","timestamp":"2026-11-20T15:06:00.120Z","seq":44,"status":"frozen","by":{"whom":["x"]}}`,
			Event{ID: eventID, Type: "card.frozen", Timestamp: at, Seq: 44, Status: "frozen"}},
		"id in the payload too": {strings.Replace(testPayload, `{`, `{"id":"`+testID.String()+`",`, 1),
			Event{ID: eventID, Type: EventTypeCardGenerated, Timestamp: at, Seq: 42, CardUUID: testID,
				Status: CardStatusGenerated, PaymentState: PaymentStatePaid}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseWebhook([]byte(tc.payload), signed(t, time.Now(), eventID.String(), tc.payload, testSecret),
				testSecret)
			if diff := difference(&tc.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestParseWebhook_RefusesWhatIsNotProven(t *testing.T) {
	set := func(key, value string) func(http.Header) { return func(h http.Header) { h.Set(key, value) } }
	signature := func(change func(string) string) func(http.Header) {
		return func(h http.Header) { h.Set("webhook-signature", change(h.Get("webhook-signature"))) }
	}
	const garbage = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	for name, tc := range map[string]struct {
		secret  Secret
		age     time.Duration
		payload string
		change  func(http.Header)
		says    string // in the error; none if the request is good
	}{
		"good":               {},
		"five minutes old":   {age: 5 * time.Minute},
		"too old":            {age: 5*time.Minute + time.Second, says: "clock"},
		"very old":           {age: 20 * 365 * 24 * time.Hour, says: "clock"},
		"five minutes ahead": {age: -5 * time.Minute},
		"too new":            {age: -5*time.Minute - time.Second, says: "clock"},
		"other secret":       {secret: otherSecret, says: "check the secret"},
		"altered payload": {payload: strings.Replace(testPayload, "42", "43", 1),
			says: "body is used as it was received"},
		"payload encoded again": {payload: strings.ReplaceAll(testPayload, ":", ": "),
			says: "body is used as it was received"},
		"no payload": {payload: "-", says: "no signature matches"},
		"altered id": {change: set("webhook-id", testID.String()), says: "no signature matches"},
		"id as it is otherwise": {change: set("webhook-id", strings.ToUpper(eventID.String())),
			says: "no signature matches"},
		"altered time": {change: set("webhook-timestamp", strconv.FormatInt(946684801, 10)),
			says: "no signature matches"},
		"no time":                   {change: set("webhook-timestamp", "now"), says: "not a number"},
		"time too large":            {change: set("webhook-timestamp", "9223372036854775808"), says: "not a number"},
		"largest time":              {change: set("webhook-timestamp", "9223372036854775807"), says: "clock"},
		"id missing":                {change: func(h http.Header) { h.Del("webhook-id") }, says: "missing"},
		"time missing":              {change: func(h http.Header) { h.Del("webhook-timestamp") }, says: "missing"},
		"signature missing":         {change: func(h http.Header) { h.Del("webhook-signature") }, says: "missing"},
		"everything missing":        {change: func(h http.Header) { clear(h) }, says: "missing"},
		"garbage":                   {change: set("webhook-signature", "garbage"), says: "no signature matches"},
		"empty list":                {change: set("webhook-signature", " "), says: "no signature matches"},
		"version without signature": {change: set("webhook-signature", "v1,"), says: "no signature matches"},
		"asymmetric only": {
			change: signature(func(s string) string { return strings.Replace(s, "v1,", "v1a,", 1) }),
			says:   "no signature matches"},
		"without version": {change: signature(func(s string) string { return strings.TrimPrefix(s, "v1,") }),
			says: "no signature matches"},
		"cut short": {change: signature(func(s string) string { return s[:len(s)-1] }),
			says: "no signature matches"},
		"other case":                {change: signature(strings.ToLower), says: "no signature matches"},
		"second is right":           {change: signature(func(s string) string { return garbage + " " + s })},
		"after one of another kind": {change: signature(func(s string) string { return "v1a,x " + s + " " + garbage })},
		"many, none right": {change: set("webhook-signature", strings.Repeat(garbage+" ", 1000)),
			says: "no signature matches"},
		"separated by a comma": {change: signature(func(s string) string { return garbage + "," + s }),
			says: "no signature matches"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the clock stands still
				h := signed(t, time.Now().Add(-tc.age), eventID.String(), testPayload, testSecret)
				if tc.change != nil {
					tc.change(h)
				}
				payload := testPayload
				if tc.payload != "" {
					payload = strings.TrimPrefix(tc.payload, "-")
				}
				secret := testSecret
				if tc.secret != "" {
					secret = tc.secret
				}
				e, err := ParseWebhook([]byte(payload), h, secret)
				if tc.says == "" {
					if err != nil || e == nil {
						t.Error(err)
					}
					return
				}
				if e != nil || !errors.Is(err, ErrWebhookSignature) || errors.Is(err, ErrWebhookPayload) ||
					!strings.Contains(err.Error(), tc.says) {
					t.Errorf("%v, %v", e, err)
				}
			})
		})
	}
}

func TestParseWebhook_SecretsCanBeChangedWithoutAGap(t *testing.T) {
	for name, tc := range map[string]struct{ signing, checking []Secret }{
		"before":                    {[]Secret{testSecret}, []Secret{testSecret}},
		"the service has both":      {[]Secret{otherSecret, testSecret}, []Secret{testSecret}},
		"the receiver has both too": {[]Secret{otherSecret, testSecret}, []Secret{otherSecret, testSecret}},
		"the receiver has the new":  {[]Secret{otherSecret, testSecret}, []Secret{otherSecret}},
		"the service has the new":   {[]Secret{otherSecret}, []Secret{testSecret, otherSecret}},
	} {
		h := signed(t, time.Now(), eventID.String(), testPayload, tc.signing...)
		if _, err := ParseWebhook([]byte(testPayload), h, tc.checking...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseWebhook_SignedButUnreadable(t *testing.T) {
	const good = `{"type":"a","timestamp":"2026-11-20T15:06:00.120Z","seq":1}`
	for name, tc := range map[string]struct{ id, payload string }{
		"empty":              {payload: ""},
		"null":               {payload: "null"},
		"a list":             {payload: "[" + good + "]"},
		"cut short":          {payload: good[:len(good)-1]},
		"two":                {payload: good + good},
		"not UTF-8 anywhere": {payload: "\xff\xfe"},
		"no type":            {payload: `{"timestamp":"2026-11-20T15:06:00.120Z","seq":1}`},
		"no time":            {payload: `{"type":"a","seq":1}`},
		"no seq":             {payload: `{"type":"a","timestamp":"2026-11-20T15:06:00.120Z"}`},
		"seq below zero":     {payload: strings.Replace(good, "1}", "-1}", 1)},
		"seq as text":        {payload: strings.Replace(good, "1}", `"1"}`, 1)},
		"seq with fraction":  {payload: strings.Replace(good, "1}", `1.5}`, 1)},
		"seq too large":      {payload: strings.Replace(good, "1}", `9223372036854775808}`, 1)},
		"local time":         {payload: strings.Replace(good, "2026-11-20T15:06:00.120Z", "2026-11-20 15:06", 1)},
		"card is no UUID":    {payload: strings.Replace(good, "1}", `1,"card_uuid":""}`, 1)},
		"id is no UUID":      {id: "msg_p5jXN8AQM9LWM0D4loKWxJek", payload: good},
		"too long":           {payload: good + strings.Repeat(" ", maxPayload)},
	} {
		t.Run(name, func(t *testing.T) {
			id := tc.id
			if id == "" {
				id = eventID.String()
			}
			e, err := ParseWebhook([]byte(tc.payload), signed(t, time.Now(), id, tc.payload, testSecret), testSecret)
			if e != nil || !errors.Is(err, ErrWebhookPayload) || errors.Is(err, ErrWebhookSignature) {
				t.Errorf("%v, %v", e, err)
			}
		})
	}
}

// Anybody could sign with a secret that is empty or short.
func TestParseWebhook_UnusableSecretIsNeverUsed(t *testing.T) {
	short := Secret("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, minSecret-1)))
	for name, secrets := range map[string][]Secret{
		"none": nil, "empty": {""}, "only the prefix": {"whsec_"}, "short": {short},
		"no base64":  {"whsec_hunter2hunter2hunter2hunter2hunter2hunter2!"},
		"public key": {"whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, "second one empty": {testSecret, ""},
	} {
		h := signed(t, time.Now(), eventID.String(), testPayload, testSecret)
		e, err := ParseWebhook([]byte(testPayload), h, secrets...)
		if e != nil || err == nil || errors.Is(err, ErrWebhookSignature) || errors.Is(err, ErrWebhookPayload) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}

func FuzzParseWebhook(f *testing.F) {
	good := signed(f, time.Unix(1614265330, 0), eventID.String(), testPayload, testSecret)
	f.Add([]byte(testPayload), eventID.String(), good.Get("webhook-timestamp"), good.Get("webhook-signature"))
	f.Add([]byte(`{}`), "msg_1", "-1", "v1,")
	f.Add([]byte(`{"type":"a","timestamp":"2026-11-20T15:06:00Z","seq":1e3}`), "{019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11}",
		"1", "v1a,x v1,y,z  ")
	f.Add([]byte(nil), "", "", "")
	f.Fuzz(func(t *testing.T, payload []byte, id, at, signature string) {
		h := http.Header{}
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", at)
		h.Set("webhook-signature", signature)
		// The corpus is from long ago: never good.
		if e, err := ParseWebhook(payload, h, testSecret); e != nil || !errors.Is(err, ErrWebhookSignature) &&
			!errors.Is(err, ErrWebhookPayload) {
			t.Fatalf("%v, %v", e, err)
		}
		// And what is behind the signature.
		e, err := ParseWebhook(payload, signed(t, time.Now(), id, string(payload), testSecret), testSecret)
		switch {
		case err != nil:
			if e != nil || !errors.Is(err, ErrWebhookPayload) && id != "" {
				t.Errorf("%v, %v", e, err)
			}
		case e.Type == "" || e.Seq < 0 || e.Timestamp.IsZero() || e.ID != uuid.MustParse(id):
			t.Errorf("%+v", e)
		}
	})
}
