package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/metrics"
	"github.com/cardmint/cardmint/internal/operator"
)

// readers are books that can be read, or can't.
type readers struct {
	now    time.Time
	reads  int
	doubts []operator.Discrepancy
	err    error
	*bookkeeper
}

func newReaders(every time.Duration) *readers {
	r := &readers{now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	r.bookkeeper = &bookkeeper{every: every, meter: metrics.New(""), log: slog.New(slog.DiscardHandler),
		now:     func() time.Time { return r.now },
		leading: map[string]bool{}, reconcile: func(context.Context) (operator.Books, error) {
			r.reads++
			return operator.Books{AsOf: r.now, Discrepancies: r.doubts}, r.err
		}}
	return r
}

// doubted returns what is exported; "" for nothing.
func (r *readers) doubted() string {
	w := httptest.NewRecorder()
	r.meter.Handler(r.log).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	_, rest, _ := strings.Cut(w.Body.String(), "\ncardmint_reconcile_doubts ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// after advances the clock by d, ticks, and checks the number of readings and
// the exported value.
func (r *readers) after(t *testing.T, d time.Duration, reads int, doubts string) {
	t.Helper()
	r.now = r.now.Add(d)
	if err := r.tick(t.Context()); !errors.Is(err, r.err) {
		t.Errorf("error %v", err)
	}
	if r.reads != reads || r.doubted() != doubts {
		t.Errorf("read %d times, doubts %q; want %d and %q", r.reads, r.doubted(), reads, doubts)
	}
}

func TestBookkeeper_WatchesChain_Reconciles(t *testing.T) {
	r := newReaders(time.Hour)
	r.after(t, 24*time.Hour, 0, "") // it stands by
	r.setLeading("monero", true)
	r.setLeading("bitcoin", false)
	r.after(t, 0, 0, "")
	r.after(t, booksDelay, 1, "0")
	r.doubts = []operator.Discrepancy{{Text: "odd"}}
	r.after(t, time.Hour-time.Second, 1, "0")
	r.after(t, time.Second, 2, "1")
	r.setLeading("monero", false)
	r.after(t, 2*time.Hour, 2, "") // somebody else knows better
}

func TestBookkeeper_ReconcileFails_RetriesSoon(t *testing.T) {
	r := newReaders(time.Hour)
	r.setLeading("monero", true)
	r.after(t, 0, 0, "")
	r.after(t, booksDelay, 1, "0")
	r.now, r.err = r.now.Add(time.Hour), errors.New("away")
	if err := r.tick(t.Context()); !errors.Is(err, r.err) || r.doubted() != "0" {
		t.Errorf("error %v, doubts %q", err, r.doubted())
	}
	r.err, r.doubts = nil, []operator.Discrepancy{{}, {}}
	r.after(t, booksDelay, 3, "2")
}
