package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
)

// problemType returns the prefix of problem types; the code follows. It is a
// URL of the service's documentation, or of the project's if publicURL is "".
// It does not depend on the request, because the Host header may be wrong
// behind a proxy.
func problemType(publicURL string) string {
	if publicURL == "" {
		return "https://github.com/cardmint/cardmint/blob/main/docs/guides/errors.md#"
	}
	return publicURL + "/docs/errors#"
}

// status returns the HTTP status for a kind of failure.
func status(kind card.Kind) int {
	switch kind {
	case card.Malformed:
		return http.StatusBadRequest
	case card.Unauthorized:
		return http.StatusUnauthorized
	case card.Forbidden:
		return http.StatusForbidden
	case card.NotFound:
		return http.StatusNotFound
	case card.MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case card.Timeout:
		return http.StatusRequestTimeout
	case card.TooLarge:
		return http.StatusRequestEntityTooLarge
	case card.UnsupportedMedia:
		return http.StatusUnsupportedMediaType
	case card.Invalid:
		return http.StatusUnprocessableEntity
	case card.LimitReached:
		return http.StatusTooManyRequests
	case card.Conflict:
		return http.StatusConflict
	case card.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// problemWriter writes errors as problem documents (RFC 9457). No other code
// writes errors.
type problemWriter struct {
	log    *slog.Logger
	types  string // prefix of types
	causes *causes
}

// newProblemWriter returns a problemWriter. publicURL is as in Config.
func newProblemWriter(log *slog.Logger, publicURL string) problemWriter {
	return problemWriter{log, problemType(publicURL), &causes{loggedAt: map[string]time.Time{}}}
}

const (
	causeInterval = time.Minute // between two log lines with the same cause
	maxCauses     = 100         // maximum in memory
)

// causes are the causes of responses with status 503. A cause affects many
// requests, and is logged once a minute.
type causes struct {
	mu       sync.Mutex
	loggedAt map[string]time.Time
}

// due reports whether to log err now. Causes that differ only in digits, such
// as an age, are equal.
func (c *causes) due(err *card.Error, now time.Time) bool {
	if err.Kind != card.Unavailable {
		return true
	}
	cause := err.Code + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Cause.Error())
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, logged := c.loggedAt[cause]; logged && now.Sub(at) < causeInterval {
		return false
	}
	if len(c.loggedAt) >= maxCauses {
		clear(c.loggedAt)
	}
	c.loggedAt[cause] = now
	return true
}

// write responds with err and ends the request. An error that is not a
// card.Error becomes an internal error without details. If part of another
// response was already sent, write aborts the connection, so that the client
// can't mistake the part for the whole.
func (p problemWriter) write(c *gin.Context, err error) {
	c.Abort()
	var known *card.Error
	if !errors.As(err, &known) {
		known = card.ErrInternal.WithCause(err)
	}
	c.Set(explainedKey, known.Cause != nil)
	if known.Cause != nil && !errors.Is(c.Request.Context().Err(), context.Canceled) && p.causes.due(known, time.Now()) {
		p.log.ErrorContext(c.Request.Context(), "request failed", "request_id", c.GetString(requestIDKey), "code",
			known.Code, "error", known.Cause, panics.Stack(known.Cause))
	}
	if c.Writer.Written() {
		panic(http.ErrAbortHandler)
	}
	c.Header("Cache-Control", "no-store")                // noStore does not run without a route
	c.Header("Content-Type", "application/problem+json") // gin would keep the type of the response that was started
	code := status(known.Kind)
	body := Problem{
		Type:      p.types + known.Code,
		Title:     known.Title,
		Status:    int32(code),
		Detail:    known.Message,
		Code:      ProblemCode(known.Code),
		RequestID: c.GetString(requestIDKey),
	}
	if len(known.Fields) > 0 {
		body.list(known.Fields)
	}
	if known.Scope != "" {
		// RFC 6750, section 3.1
		c.Header("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope=%q`, known.Scope))
	}
	switch known.Kind {
	case card.Unauthorized:
		c.Header("WWW-Authenticate", "Bearer")
	case card.Unavailable, card.LimitReached:
		c.Header("Retry-After", strconv.FormatInt(seconds(known.RetryAfter), 10))
	}
	if q := known.Quota; q != nil {
		addQuota(c.Writer.Header(), q)
	}
	if c.Request.ContentLength != 0 && skipsBody(known) {
		c.Header("Connection", "close") // otherwise net/http would read the rest of the body before it responds
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		panic(err) // can't happen: body has only strings and numbers
	}
	c.Data(code, "application/problem+json", text.Bytes())
}

// maxErrors is how many errors a problem lists, to bound the size of the
// response.
const maxErrors = 100

// list adds errors to a problem. If there are too many, unknown fields are
// omitted first: a program can generate any number of them, and they would hide
// the other errors.
func (p *Problem) list(errs []card.FieldError) {
	p.Detail = fmt.Sprintf(`%d things are wrong with the request. See "errors".`, len(errs))
	if len(errs) == 1 {
		p.Detail = `1 thing is wrong with the request. See "errors".`
	}
	if omitted := len(errs) - maxErrors; omitted > 0 {
		unknown := func(f card.FieldError) bool { return f.Detail == detailUnknown }
		known := func(f card.FieldError) bool { return !unknown(f) }
		errs = append(slices.DeleteFunc(slices.Clone(errs), unknown),
			slices.DeleteFunc(slices.Clone(errs), known)...)[:maxErrors]
		p.ErrorsOmitted = new(int64(omitted))
	}
	fields := make([]FieldError, len(errs))
	for i, f := range errs {
		// Pointers contain names from the request. Details are texts of the
		// service, with values redacted.
		fields[i] = FieldError{Pointer: card.Redact(f.Pointer), Detail: f.Detail}
	}
	p.Errors = &fields
}

// skipsBody reports whether a request may be refused with err before its body
// was read.
func skipsBody(err *card.Error) bool {
	switch err.Kind {
	case card.Unauthorized, card.NotFound, card.MethodNotAllowed, card.UnsupportedMedia, card.TooLarge, card.Timeout:
		return true
	}
	return err.Scope != ""
}

func (p problemWriter) noRoute(c *gin.Context)  { p.write(c, card.ErrNotFound) }
func (p problemWriter) noMethod(c *gin.Context) { p.write(c, card.ErrMethodNotAllowed) }

// badRequest responds to a request that the generated code can't bind.
// Validation should have rejected it.
func (p problemWriter) badRequest(c *gin.Context, err error) {
	p.log.WarnContext(c.Request.Context(), "request passed validation but does not bind", "request_id",
		c.GetString(requestIDKey), "error", err)
	p.write(c, card.ErrInvalidRequest.WithFields(
		card.FieldError{Detail: "does not have the form that the specification gives for this operation"}))
}

// recovery turns a panic into an internal error. It does not log the panic's
// value, which may contain data of the request.
func (p problemWriter) recovery(c *gin.Context) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(value)
		}
		err := panics.New(value)
		p.log.ErrorContext(c.Request.Context(), "panic", "request_id", c.GetString(requestIDKey), "error", err,
			panics.Stack(err))
		p.write(c, card.ErrInternal)
	}()
	c.Next()
}
