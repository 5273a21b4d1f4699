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

// loop is something that a process does repeatedly.
type loop struct {
	name    string
	every   time.Duration
	woken   wake          // nil if nobody wakes it
	longest time.Duration // pause while it keeps failing; 0 for longestPause
	steady  bool          // it starts again within every, whether the last tick failed, and however long it took
	tick    func(context.Context) error
	coin    string                      // that can't be sold for while the loop is not well; "" for all
	health  func(context.Context) error // what readiness asks; nil for nothing
	close   func(context.Context) error // called after the last tick; nil for nothing
	grace   time.Duration               // that close may take
	last    bool                        // close is called when nothing else of the process runs any more
}

// wake lets one loop tell another that there is work. Calls while the other is
// busy count once.
type wake chan struct{}

func (w wake) up() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// wakes wake several loops.
type wakes []wake

func (all wakes) up() {
	for _, w := range all {
		w.up()
	}
}

// longestPause is the longest pause of a loop that keeps failing. It is well
// within five seconds of the end of the cause.
const longestPause = 4 * time.Second

// live runs the loop until ctx ends, and closes what it used unless that is to
// be last. It returns nil.
func (l loop) live(ctx context.Context, log *slog.Logger) error {
	l.run(ctx, log)
	if !l.last {
		l.end(ctx, log)
	}
	return nil
}

// run calls tick until ctx ends: at once, when the loop is woken, and after
// every interval. Intervals vary by a tenth, so that replicas do not work in
// step, and double with each failure in a row up to longestPause. Until the
// interval after a failure has passed, the loop is not woken. An error is
// logged when its cause is new, and once a minute while it lasts. A panic is a
// failure like any other.
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
		woken := l.woken
		if err == nil || l.steady {
			wait = l.every
		} else {
			woken = nil // a wake-up during the pause is kept
			wait = max(l.every, min(2*wait, cmp.Or(l.longest, longestPause)))
		}
		length := wait*9/10 + rand.N(wait/5)
		if l.steady {
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

// causeOf returns the card.Unready of an error, or its text if it has none. A
// text may differ each time: it can contain a port or a height.
func causeOf(err error) string {
	if why, ok := errors.AsType[card.Unready](err); ok {
		return string(why)
	}
	return err.Error()
}

// logFailure logs the error of a tick, and its reason if that is known.
func logFailure(ctx context.Context, log *slog.Logger, err error) {
	if why, ok := errors.AsType[card.Unready](err); ok {
		log = log.With("cause", string(why))
	}
	log.ErrorContext(ctx, "failed", "error", err, panics.Stack(err))
}

// end closes what the loop used, although ctx has ended.
func (l loop) end(ctx context.Context, log *slog.Logger) {
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

// closeLast closes concurrently the loops that are closed last.
func closeLast(ctx context.Context, loops []loop, log *slog.Logger) {
	var all sync.WaitGroup
	for _, l := range loops {
		if l.last {
			all.Go(func() { l.end(ctx, log) })
		}
	}
	all.Wait()
}
