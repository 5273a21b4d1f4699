package rate_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/rate"
)

// book is a rate.Book in memory.
type book struct {
	mu       sync.Mutex
	accepted []card.AcceptedRate
	inserted int // number of inserted rates
	parked   map[string][]card.ParkedRate
	broken   error // returned by every method
	hang     bool  // until the context ends
}

func (b *book) call(ctx context.Context) error {
	if b.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return b.broken
}

func (b *book) AcceptedRates(ctx context.Context, currencies []string, within time.Duration) (all []card.AcceptedRate,
	err error) {
	if err := b.call(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.accepted {
		if slices.Contains(currencies, r.Currency) {
			all = append(all, r)
		}
	}
	if within != time.Hour {
		err = errors.New("an hour is enough")
	}
	return all, err
}

func (b *book) InsertAcceptedRates(ctx context.Context, rates []card.AcceptedRate, keep time.Duration) error {
	if err := b.call(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(rates) == 0 {
		return errors.New("no rates to insert")
	}
	b.inserted += len(rates)
	for _, r := range rates {
		if r.ID == uuid.Nil || r.By == "" || r.Source == "" || keep != time.Hour {
			return errors.New("incomplete")
		}
		if !slices.ContainsFunc(b.accepted, func(known card.AcceptedRate) bool { return known.ID == r.ID }) {
			b.accepted = append(b.accepted, r)
		}
	}
	return nil
}

func (b *book) SaveParkedRates(ctx context.Context, process string, rates []card.ParkedRate) error {
	if err := b.call(ctx); err != nil {
		return err
	}
	if b.parked == nil {
		b.parked = map[string][]card.ParkedRate{}
	}
	b.parked[process] = rates
	return nil
}

// accepts stores an operator's acceptance of a rate.
func (b *book) accepts(t testing.TB, usd string, at time.Time) {
	t.Helper()
	b.accepted = append(b.accepted,
		card.AcceptedRate{ID: uuid.Must(uuid.NewV7()), Currency: "monero", USD: decimal(t, usd), Source: "s", At: at,
			By: "alice", Note: "I looked"})
}

// replica is a process with two sources and its own rates.
type replica struct {
	*rate.Live
	t       testing.TB
	clock   *clock
	sources []*script
}

func newReplica(t testing.TB, b *book, c *clock, process string) *replica {
	t.Helper()
	live, _, sources := newLive(t, 2, rate.Config{Now: c.now})
	live.UseBook(b, process)
	return &replica{live, t, c, sources}
}

// say makes both sources quote usd at the current time.
func (r *replica) say(usd string) {
	for _, s := range r.sources {
		s.quotes(r.t, r.clock.now(), map[string]string{"monero": usd})
	}
}

// tick makes both sources quote usd a minute later, and runs Tick and Follow.
func (r *replica) tick(usd string) error {
	r.clock.pass(time.Minute)
	r.say(usd)
	_ = r.Follow(r.t.Context())
	return errors.Join(r.Tick(r.t.Context()), r.Follow(r.t.Context()))
}

func TestLive_JumpAfterRestart_IsHeld(t *testing.T) {
	b, c := &book{}, &clock{noon}
	first := newReplica(t, b, c, "one")
	if err := first.tick("150"); err != nil {
		t.Fatal(err)
	}
	c.pass(12 * time.Hour)
	second := newReplica(t, b, c, "two")
	wantNoRate(t, second.Live, "no source was fetched yet") // stored rates are never quoted
	_ = second.tick("180")
	wantNoRate(t, second.Live, "180 is more than 15 percent from the last rate 150, and is held until seen 3 times (now 1")
	_ = second.tick("180")
	wantNoRate(t, second.Live, "now 2")
	if err := second.tick("180"); err != nil {
		t.Error(err)
	}
	wantRate(t, second.Live, "180")

	third := newReplica(t, b, c, "three")
	for range 3 {
		_ = third.tick("1500")
	}
	wantNoRate(t, third.Live, "1500 is more than 30 percent from 180")
	if err := newReplica(t, b, c, "four").tick("181"); err != nil {
		t.Error(err)
	}
	var got []string
	for _, r := range b.accepted {
		got = append(got, r.By+" "+r.USD.String()+" "+r.Source)
	}
	want := []string{"one 150 median a=150 b=150", "two 180 median a=180 b=180", "four 181 median a=181 b=181"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLive_RateAcceptedByOperator_QuotedWithoutTick(t *testing.T) {
	b, c := &book{}, &clock{noon}
	one, two := newReplica(t, b, c, "one"), newReplica(t, b, c, "two")
	_, _ = one.tick("150"), two.tick("150")
	for range 3 {
		_, _ = one.tick("300"), two.tick("300")
	}
	for _, r := range []*replica{one, two} {
		wantNoRate(t, r.Live, "300 is more than 30 percent from 150")
		if _, err := r.Rate("monero"); !errors.Is(err, rate.ErrParked) {
			t.Errorf("%v is not parked", err)
		}
	}
	if n := len(b.parked["one"]); n != 1 || len(b.parked["two"]) != 1 {
		t.Fatalf("%+v", b.parked)
	}
	p := b.parked["one"][0]
	if p.USD.String() != "300" || p.Source != "median a=300 b=300" || !strings.Contains(p.Why, "150") || p.By != "one" ||
		p.Currency != "monero" ||
		!p.Since.Equal(p.Until.Add(-5*time.Minute)) {
		t.Errorf("%+v", p)
	}

	c.pass(10 * time.Second)
	b.accepts(t, "305", c.now())
	for _, r := range []*replica{one, two} {
		for _, s := range r.sources {
			s.fails(errors.New("must not be fetched"))
		}
		if err := r.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRate(t, r.Live, "300")
		if err := r.Health(); err != nil {
			t.Error(err)
		}
	}
	if len(b.parked["one"])+len(b.parked["two"]) != 0 {
		t.Errorf("still parked: %+v", b.parked)
	}
	// The acceptance survives a restart, and need not be repeated.
	if err := newReplica(t, b, c, "three").tick("310"); err != nil {
		t.Error(err)
	}
	if err := one.tick("150"); err == nil {
		t.Error("an equal jump back was accepted")
	}
}

func TestLive_AnotherRateAccepted_ChangesNothing(t *testing.T) {
	b, c := &book{}, &clock{noon}
	r := newReplica(t, b, c, "one")
	_ = r.tick("150")
	for range 3 {
		_ = r.tick("300")
	}
	b.accepts(t, "200", c.now())
	if err := r.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoRate(t, r.Live, "300 is more than 30 percent from 150")
	_ = r.tick("300")
	wantNoRate(t, r.Live, "300 is more than 30 percent from 200")
}

// A jump that one process held until it was confirmed is accepted by all.
func TestLive_ReplicasAgree(t *testing.T) {
	b, c := &book{}, &clock{noon}
	one, two := newReplica(t, b, c, "one"), newReplica(t, b, c, "two")
	_, _ = one.tick("150"), two.tick("150")
	for range 3 {
		_ = one.tick("180")
	}
	wantRate(t, one.Live, "180")
	if err := two.tick("181"); err != nil {
		t.Error(err)
	}
	wantRate(t, two.Live, "181")
	// A replica with deviating sources does not change the rates of another.
	for range 4 {
		_ = two.tick("100")
	}
	wantNoRate(t, two.Live, "100 is more than 30 percent from 150")
	if err := one.tick("180"); err != nil {
		t.Error(err)
	}
}

func TestLive_BookDown_NoFirstRateButKeepsLast(t *testing.T) {
	b, c := &book{broken: errors.New("unreachable")}, &clock{noon}
	b.accepts(t, "150", c.now().Add(-12*time.Hour))
	r := newReplica(t, b, c, "one")
	if err := r.tick("150"); err == nil {
		t.Error("no error")
	}
	wantNoRate(t, r.Live, "the accepted rates are not known: unreachable")
	if err := r.Follow(t.Context()); err == nil {
		t.Error("no error")
	}
	b.broken = nil
	for _, s := range r.sources {
		s.fails(errors.New("must not be fetched"))
	}
	if err := r.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRate(t, r.Live, "150")
	n, inserted := len(b.accepted), b.inserted

	b.broken = errors.New("unreachable")
	for _, usd := range []string{"151", "152", "153"} {
		if err := r.tick(usd); err == nil || err.Error() != "read accepted rates: unreachable" {
			t.Errorf("%v", err)
		}
		wantRate(t, r.Live, usd)
	}
	for range 3 {
		_ = r.tick("1530") // also held and parked without the book
	}
	wantNoRate(t, r.Live, "1530 is more than 30 percent from 150")
	b.broken = nil
	if err := r.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.accepted) != n+3 || b.accepted[n+2].USD.String() != "153" ||
		!b.accepted[n+2].At.Equal(noon.Add(4*time.Minute)) {
		t.Errorf("%+v", b.accepted)
	}
	if len(b.parked["one"]) != 1 {
		t.Errorf("parked: %+v", b.parked)
	}
	if err := r.Follow(t.Context()); err != nil || b.inserted != inserted+3 {
		t.Errorf("%v, %d rates were stored, want each of 3 once", err, b.inserted-inserted)
	}
}

func TestLive_FirstStart_ReadsBook(t *testing.T) {
	b, c := &book{broken: errors.New("unreachable")}, &clock{noon}
	b.accepts(t, "150", c.now().Add(-12*time.Hour))
	r := newReplica(t, b, c, "one")
	_ = r.tick("300")
	b.broken = nil
	if err := r.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoRate(t, r.Live, "300 is more than 15 percent from the last rate 150, and is held until seen 3 times (now 1")
}

// Once the book is read, the quotes of the last Tick are accepted if they match
// the rates in it.
func TestLive_BookReadLate_FirstRateFollows(t *testing.T) {
	b, c := &book{}, &clock{noon}
	if err := newReplica(t, b, c, "one").tick("150"); err != nil {
		t.Fatal(err)
	}
	b.broken = errors.New("unreachable")
	two := newReplica(t, b, c, "two")
	_ = two.tick("151")
	wantNoRate(t, two.Live, "the accepted rates are not known: unreachable")
	b.broken = nil
	if err := two.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRate(t, two.Live, "151")
}

// Each acceptance is logged once, when it takes effect. Acceptances from before
// a start are not logged.
func TestLive_RateAcceptedByOperator_LoggedOnce(t *testing.T) {
	var logged strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	b, c := &book{}, &clock{noon}
	r := newReplica(t, b, c, "one")
	for i, usd := range []string{"150", "151", "300", "310"} {
		if i >= 2 {
			c.pass(time.Second)
			b.accepts(t, usd, c.now())
		}
		_, _ = r.tick(usd), r.tick(usd)
		if n := strings.Count(logged.String(), "rate accepted by an operator"); n != max(0, i-1) {
			t.Errorf("after %s, %d acceptances were logged, want %d", usd, n, max(0, i-1))
		}
	}
	_ = newReplica(t, b, c, "two").tick("310")
	if n := strings.Count(logged.String(), "rate accepted by an operator"); n != 2 {
		t.Errorf("after a restart, %d acceptances were logged, want 2", n)
	}
}

func TestLive_BookHangs_DelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := &book{}, &clock{noon}
		r := newReplica(t, b, c, "one")
		if err := r.tick("150"); err != nil {
			t.Fatal(err)
		}
		b.hang = true
		began := time.Now()
		r.say("151")
		if err := r.Tick(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		wantRate(t, r.Live, "151")
		var following sync.WaitGroup
		following.Go(func() { _ = r.Follow(t.Context()) })
		synctest.Wait()
		wantRate(t, r.Live, "151") // Rate does not wait for Follow
		following.Wait()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestLive_FirstRateWithoutComparison_Logged(t *testing.T) {
	var logged strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	b, c := &book{}, &clock{noon}
	const warning = "accepted without comparison"
	if err := newReplica(t, b, c, "one").tick("150"); err != nil || strings.Count(logged.String(), warning) != 1 {
		t.Errorf("%v: %s", err, logged.String())
	}
	if err := newReplica(t, b, c, "two").tick("150"); err != nil || strings.Count(logged.String(), warning) != 1 {
		t.Errorf("%v: %s", err, logged.String())
	}
}
