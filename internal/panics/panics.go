// Package panics turns panics into errors, so that one row, reply or file can't
// crash the process.
//
// Every package may import it. Goroutines that work on items use Call or defer
// Recover; the caller treats the item as failed. A panic's value may contain
// secrets: it is neither stored nor logged.
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

// recovered counts the recovered panics of the process.
var recovered atomic.Int64

// Recovered returns the number of recovered panics of the process.
func Recovered() int64 { return recovered.Load() }

// Error is a recovered panic. Its text contains the type of the panic's value,
// and the place of the panic.
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

// place returns a frame's function and line, without arguments, which may be
// secret.
func place(f runtime.Frame) string {
	return fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line)
}

// Stack returns the stack of the panic in err as a log attribute, innermost
// call first. If err is not a panic, it returns the empty attribute, which
// handlers ignore.
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

// New counts a recovered panic, and returns it as an error. It must be called
// by the deferred function that has recovered value.
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
		case panicked: // earlier frames belong to the recovery
			e.stack = append(e.stack, f)
		}
	}
	return e
}
