// Package panics turns panics into errors, so that one row, one answer or one
// file cannot end the process.
//
// Every package may import it. Goroutines that work on items call Call or defer
// Recover; the caller then treats the item as failed. A panic's value may
// contain data: it is neither kept nor shown.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime"
	"strings"
	"sync/atomic"
)

// recovered counts the panics of the process, as the runtime counts its
// collections.
var recovered atomic.Int64

// Recovered returns how many panics this process has recovered from.
func Recovered() int64 { return recovered.Load() }

// Error is a recovered panic. Its text names the type of the panic's value and
// where it happened.
type Error struct {
	kind  string
	stack []runtime.Frame // innermost first
}

func (e *Error) Error() string {
	at := "unknown"
	if len(e.stack) > 0 {
		at = place(e.stack[0])
	}
	return fmt.Sprintf("panic with a value of type %s at %s", e.kind, at)
}

// place names a frame without the arguments of its call, which may be data.
func place(f runtime.Frame) string {
	return fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line)
}

// Stack returns the stack of the panic in err for a log line, innermost call
// first. It is the empty attribute, which a log leaves out, if err is no panic.
func Stack(err error) slog.Attr {
	e, is := errors.AsType[*Error](err)
	if !is {
		return slog.Attr{}
	}
	places := make([]string, len(e.stack))
	for i, f := range e.stack {
		places[i] = place(f)
	}
	return slog.String("stack", strings.Join(places, " < "))
}

// Recover, when deferred, turns a panic into *err.
func Recover(err *error) {
	if value := recover(); value != nil {
		*err = New(value)
	}
}

// Call returns f's error, or an Error if f panics.
func Call(f func() error) (err error) {
	defer Recover(&err)
	return f()
}

// New counts a panic that the caller has just recovered, in the deferred
// function, and returns it as an error.
func New(value any) *Error {
	recovered.Add(1)
	e := &Error{kind: fmt.Sprintf("%T", value)}
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	panicked := false
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicked = panicked || f.Function == "runtime.gopanic"
		case panicked: // frames before belong to the recovery
			e.stack = append(e.stack, f)
		}
	}
	return e
}
