package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/panics"
)

// loop is work that a process repeats.
type loop struct {
	name      string
	every     time.Duration
	wake      wake          // starts the next tick early; may be nil
	maxPause  time.Duration // between failing ticks; 0 for defaultMaxPause
	fixedRate bool          // measure every from the start of a tick, and do not back off
	tick      func(context.Context) error
	coin      string                      // coin that depends on the loop; "" for all
	health    func(context.Context) error // readiness check; may be nil
	close     func(context.Context) error // called after the last tick; may be nil
	grace     time.Duration               // limit of close
	closeLast bool                        // call close after everything else has stopped
}

// wake starts the next tick of a loop early. Calls during a tick count once.
type wake chan struct{}

func (w wake) notify() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// wakes wake several loops.
type wakes []wake

func (all wakes) notify() {
	for _, w := range all {
		w.notify()
	}
}

// defaultMaxPause is the longest pause of a failing loop. A loop recovers
// within five seconds after the cause of its failures has passed.
const defaultMaxPause = 4 * time.Second

// runAndClose runs the loop until ctx ends. Unless closeLast is set, it closes
// the loop too.
func (l loop) runAndClose(ctx context.Context, log *slog.Logger) {
	l.run(ctx, log)
	if !l.closeLast {
		l.shutdown(ctx, log)
	}
}

// run calls tick until ctx ends: immediately, after each interval, and when
// woken. Intervals vary by 10 %, so that replicas do not run in step, and
// double with each consecutive failure up to the maximum. Wake-ups do not
// shorten the pause after a failure. An error is logged when its cause changes,
// and once a minute while it persists. A panic counts as an error.
func (l loop) run(ctx context.Context, log *slog.Logger) {
	ctx = inLoop(ctx, l.name)
	var last string
	var lastAt time.Time
	wait := l.every
	for ctx.Err() == nil {
		began := time.Now()
		err := panics.Call(func() error { return l.tick(ctx) })
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && (causeOf(err) != last || time.Since(lastAt) > time.Minute):
			logFailure(ctx, log, err)
			last, lastAt = causeOf(err), time.Now()
		case err == nil && last != "":
			log.InfoContext(ctx, "well again", "after", last)
			last = ""
		}
		woken := l.wake
		if err == nil || l.fixedRate {
			wait = l.every
		} else {
			woken = nil // keeps a wake-up during the pause for later
			wait = max(l.every, min(2*wait, cmp.Or(l.maxPause, defaultMaxPause)))
		}
		length := wait*9/10 + rand.N(wait/5)
		if l.fixedRate {
			length = wait - rand.N(max(wait/10, 1)) - time.Since(began)
		}
		pause := time.NewTimer(length)
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-woken:
		}
		pause.Stop()
	}
}

// causeOf returns the card.Unready of an error, or else its text. Texts may
// contain a port or a height, which change.
func causeOf(err error) string {
	if why, ok := errors.AsType[card.Unready](err); ok {
		return string(why)
	}
	return err.Error()
}

// logFailure logs the error of a tick, and its reason if known.
func logFailure(ctx context.Context, log *slog.Logger, err error) {
	if why, ok := errors.AsType[card.Unready](err); ok {
		log = log.With("cause", string(why))
	}
	log.ErrorContext(ctx, "failed", "error", err, panics.Stack(err))
}

// shutdown calls close within its grace, although ctx has ended.
func (l loop) shutdown(ctx context.Context, log *slog.Logger) {
	if l.close == nil {
		return
	}
	ctx, cancel := context.WithTimeout(inLoop(context.WithoutCancel(ctx), l.name), l.grace)
	defer cancel()
	if err := panics.Call(func() error { return l.close(ctx) }); err != nil {
		log.WarnContext(ctx, "closing", "error", err, panics.Stack(err))
	}
}

// Repeat calls tick once per interval until ctx ends. It logs errors, and
// recovers panics.
func Repeat(ctx context.Context, log *slog.Logger, name string, every time.Duration, tick func(context.Context) error) {
	loop{name: name, every: every, tick: tick}.run(ctx, log)
}

// closeRemaining closes concurrently the loops that are closed last.
func closeRemaining(ctx context.Context, loops []loop, log *slog.Logger) {
	var all sync.WaitGroup
	for _, l := range loops {
		if l.closeLast {
			all.Go(func() { l.shutdown(ctx, log) })
		}
	}
	all.Wait()
}
