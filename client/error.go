package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is a response whose status is not 2xx. Find it with [errors.As].
type Error struct {
	// kind of problem, for programs; empty if the response is not the
	// service's, but a proxy's for example
	Code       ProblemCode
	Status     int           // HTTP status of the response
	Title      string        // the kind of problem, in a few words
	Detail     string        // this occurrence and its remedy, for people
	RequestID  string        // identifies the request in the service's log; may be empty
	Fields     []FieldError  // with [ProblemCodeInvalidRequest], all problems of the request
	RetryAfter time.Duration // requested wait, at most a day; zero for none

	FieldsOmitted int // number of problems beyond the hundred in Fields
}

// Error is one line for people. Decide by Code, not by this text.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", e.Status, e.Title)
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	for i, f := range e.Fields {
		sep := "; "
		if i == 0 {
			sep = " "
		}
		fmt.Fprintf(&b, "%s%s %s", sep, f.Pointer, f.Detail)
	}
	if e.FieldsOmitted > 0 {
		fmt.Fprintf(&b, "; and %d more", e.FieldsOmitted)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " [request %s]", e.RequestID)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// asType is errors.AsType, which Go 1.25 does not have.
func asType[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e)
	return e, ok
}

const (
	maxProblem    = 256 << 10 // bytes; pointers into a body of 64 KiB may take double its size
	maxRetryAfter = 24 * time.Hour
)

// newError decodes the error of a response.
func newError(res *http.Response) *Error {
	e := &Error{
		Status:     res.StatusCode,
		Title:      http.StatusText(res.StatusCode),
		RequestID:  res.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(res.Header.Get("Retry-After"), time.Now()),
	}
	kind := mediaType(res.Header)
	switch {
	case kind == "application/problem+json" || kind == "application/json":
		var problem struct {
			Title, Detail string
			Code          ProblemCode
			RequestID     string `json:"request_id"`
			Errors        []FieldError
			ErrorsOmitted int `json:"errors_omitted"`
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
		if err != nil || json.Unmarshal(body, &problem) != nil {
			e.Detail = "the response can't be read"
			break
		}
		e.Code, e.Detail, e.Fields = problem.Code, problem.Detail, problem.Errors
		e.FieldsOmitted = problem.ErrorsOmitted
		if problem.Title != "" {
			e.Title = problem.Title
		}
		if problem.RequestID != "" {
			e.RequestID = problem.RequestID
		}
	case res.StatusCode/100 == 3:
		e.Detail = "redirects are not followed, correct the base URL"
		if to, err := res.Location(); err == nil {
			e.Detail += "; this one leads to " + to.Scheme + "://" + to.Host + to.EscapedPath()
		}
	default:
		// The body is left out: it may be a page of HTML, or repeat the
		// request.
		e.Detail = "the response is " + kind + ", not a problem document; it may be a proxy's"
	}
	return e
}

// retryAfter parses the header Retry-After, which is seconds or a time. It
// returns zero if the value is invalid or has passed.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
