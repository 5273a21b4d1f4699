package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// refusal returns the error of GetCard for a response.
func refusal(t *testing.T, s step) *Error {
	t.Helper()
	c, _ := scripted(t, []step{s}, WithRetry(1, 0))
	card, err := c.GetCard(t.Context(), uuid.Nil)
	var e *Error
	if !errors.As(err, &e) || card != nil {
		t.Fatalf("card %v, error %v", card, err)
	}
	return e
}

func TestError_HasEverythingOfAProblem(t *testing.T) {
	e := refusal(t, answer(422, `{"type":"https://x.test/#invalid_request","title":"Invalid request","status":422,"code":"invalid_request",
"detail":"2 things are wrong with the request. See \"errors\".","request_id":"019aa1c9",
"errors":[{"pointer":"/usd_amount","detail":"must be between 50 and 750"},{"pointer":"/currency","detail":"is missing"}]}`,
		"Content-Type", "application/problem+json", "X-Request-Id", "other", "Retry-After", "5"))
	want := &Error{
		Code: ProblemCodeInvalidRequest, Status: 422, Title: "Invalid request", RequestID: "019aa1c9",
		RetryAfter: 5 * time.Second,
		Detail:     `2 things are wrong with the request. See "errors".`,
		Fields: []FieldError{{Pointer: "/usd_amount", Detail: "must be between 50 and 750"},
			{Pointer: "/currency", Detail: "is missing"}},
	}
	if diff := difference(want, e); diff != "" {
		t.Error(diff)
	}
	line := `422 Invalid request (invalid_request): 2 things are wrong with the request. See "errors". ` +
		`/usd_amount must be between 50 and 750; /currency is missing [request 019aa1c9]`
	if e.Error() != line {
		t.Errorf("got  %s\nwant %s", e, line)
	}
}

// A problem lists a hundred errors, and its pointers may be longer than the
// body of the request.
func TestError_TellsThatMoreIsWrong(t *testing.T) {
	long := strings.Repeat("~0", 60_000)
	e := refusal(t, answer(422, `{"title":"Invalid request","status":422,"code":"invalid_request","detail":"2 things are wrong.","request_id":"r1",
"errors":[{"pointer":"/`+long+`","detail":"is not a field of this request"}],"errors_omitted":3902}`, "Content-Type", "application/problem+json"))
	if e.Code != ProblemCodeInvalidRequest || len(e.Fields) != 1 || e.FieldsOmitted != 3902 {
		t.Fatalf("%.200v", e)
	}
	if want := "/" + long +
		" is not a field of this request; and 3902 more [request r1]"; !strings.HasSuffix(e.Error(), want) {
		t.Errorf("%.100s...", e)
	}
}

func TestError_OfAProxyIsShortAndWithoutItsBody(t *testing.T) {
	page := "<html>" + testToken + strings.Repeat("<p>Bad gateway</p>\n", 10_000)
	for name, tc := range map[string]struct {
		answer step
		line   string
	}{
		"HTML": {answer(502, page, "Content-Type", "text/html; charset=utf-8", "X-Request-Id", "r7"),
			"502 Bad Gateway: the response is text/html, not a problem document; it may be a proxy's [request r7]"},
		"no type": {answer(502, page, "Content-Type", ""),
			"502 Bad Gateway: the response is of no known type, not a problem document; it may be a proxy's"},
		"HTML as JSON": {answer(503, page), "503 Service Unavailable: the response can't be read"},
		"other JSON":   {answer(403, `{"message":"Forbidden"}`), "403 Forbidden"},
		"other shape":  {answer(403, `{"code":1020,"title":"Forbidden"}`), "403 Forbidden: the response can't be read"},
		"broken off": {cutOff(503, `{"title":"Unavailable","code":"unavailable"}`),
			"503 Service Unavailable: the response can't be read"},
		"several lines": {answer(400, `{"title":"No.","detail":"a\r\n  b"}`), "400 No.: a b"},
	} {
		t.Run(name, func(t *testing.T) {
			e := refusal(t, tc.answer)
			if e.Code != "" || e.Error() != tc.line {
				t.Errorf("code %q\ngot  %s\nwant %s", e.Code, e, tc.line)
			}
		})
	}
}

// endless is a body that does not end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return copy(p, strings.Repeat("a", len(p))), nil
}

func TestError_EndlessBodyIsNotReadToItsEnd(t *testing.T) {
	body := &endless{}
	refusal(t, func(r *http.Request) (*http.Response, error) {
		res, err := answer(500, "")(r)
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"title":"`), body))
		return res, err
	})
	if body.read > 2*maxProblem {
		t.Errorf("read %d bytes", body.read)
	}
}

func TestRetryAfter_IsClamped(t *testing.T) {
	now := time.Date(2026, 11, 20, 14, 46, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"5":                             5 * time.Second,
		"-5":                            0,
		"1.5":                           0,
		"soon":                          0,
		"86401":                         24 * time.Hour,
		"2147483647":                    24 * time.Hour,
		"99999999999999999999999":       0,
		"Fri, 20 Nov 2026 14:46:30 GMT": 30 * time.Second,
		"Fri, 20 Nov 2026 14:45:30 GMT": 0,
		"Fri, 20 Nov 9999 14:45:30 GMT": 24 * time.Hour,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "5", "-1", "99999999999999999999", "Fri, 20 Nov 2026 14:46:30 GMT",
		"Friday, 20-Nov-26 14:46:30 GMT"} {
		f.Add(s, int64(1_795_185_960))
	}
	f.Fuzz(func(t *testing.T, header string, now int64) {
		if d := retryAfter(header, time.Unix(now, 0)); d < 0 || d > maxRetryAfter {
			t.Errorf("%v", d)
		}
	})
}
