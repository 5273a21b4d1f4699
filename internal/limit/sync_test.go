package limit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/limit"
)

var errStore = errors.New("the store is unreachable")

// memory is a Store in memory.
type memory struct {
	text  map[string]string
	calls []string
	fails bool
}

func (m *memory) do(call string) error {
	m.calls = append(m.calls, call)
	if m.fails {
		return errStore
	}
	return nil
}

func (m *memory) SaveUsage(_ context.Context, process, usage string) error {
	if err := m.do("save"); err != nil {
		return err
	}
	if m.text == nil {
		m.text = map[string]string{}
	}
	m.text[process] = usage
	return nil
}

func (m *memory) DeleteUsage(_ context.Context, process string) error {
	if err := m.do("delete"); err != nil {
		return err
	}
	delete(m.text, process)
	return nil
}

func (m *memory) UsageOfOthers(_ context.Context, process string, _ time.Duration) (map[string]string, error) {
	if err := m.do("read"); err != nil {
		return nil, err
	}
	all := maps.Clone(m.text)
	delete(all, process)
	return all, nil
}

// fleet is several processes that share a store.
type fleet struct {
	*clock
	store *memory
	all   []*limit.Limiter
}

func newFleet(t testing.TB, n int, cfg limit.Config) *fleet {
	t.Helper()
	f := &fleet{clock: newClock(), store: &memory{}}
	for i := range n {
		cfg.Process, cfg.Now = fmt.Sprint(i), f.now
		f.all = append(f.all, limit.New(f.store, cfg))
	}
	f.tick(t)
	return f
}

func (f *fleet) tick(t testing.TB) {
	t.Helper()
	for _, l := range f.all {
		if err := l.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// flood sends n requests per second to each of some processes for a number of
// seconds, and returns how many were admitted.
func (f *fleet) flood(t testing.TB, seconds, n int, to ...int) (total int) {
	t.Helper()
	for range seconds {
		for range 100 {
			f.advance(10 * time.Millisecond)
			for _, i := range to {
				total += passed(f.all[i], who, who, false, n/100)
			}
		}
		f.tick(t)
	}
	return total
}

var who = uuid.MustParse("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")

// A process that receives all requests admits the whole limit.
func TestTick_OneBusyProcess_AdmitsWholeLimit(t *testing.T) {
	f := newFleet(t, 3, limit.Config{Token: policy(t, "100/s")})
	if got := f.flood(t, 60, 1000, 1); got < 6000 || got > 6100 {
		t.Errorf("%d requests passed in a minute", got)
	}
}

// Requests admitted before the first exchange are charged afterwards.
func TestTick_ThreeBusyProcesses_KeepLimitOverTime(t *testing.T) {
	for _, window := range []string{"100/s", "1000/10s"} {
		p := policy(t, window)
		f := newFleet(t, 3, limit.Config{Token: p})
		got, most := f.flood(t, 60, 3000, 0, 1, 2), 6000+3*int(p.Quota)+200
		if got < 6000 || got > most {
			t.Errorf("%s: %d requests passed in a minute, at most %d should", window, got, most)
		}
		if later := f.flood(t, 60, 3000, 0, 1, 2); later < 5500 || later > 6500 {
			t.Errorf("%s: %d requests passed in the next minute", window, later)
		}
	}
}

// Little traffic in each process can exceed the limit in total.
func TestTick_EvenTraffic_IsCountedInTotal(t *testing.T) {
	f := newFleet(t, 3, limit.Config{Token: policy(t, "1000/10s")})
	if got := f.flood(t, 120, 100, 0, 1, 2); got > 120*100+3*1000+200 {
		t.Errorf("%d requests passed in two minutes", got)
	}
}

func TestTick_ClientChangesProcess_KeepsItsDebt(t *testing.T) {
	f := newFleet(t, 2, limit.Config{Token: policy(t, "600/min")})
	if got := passed(f.all[0], who, who, false, 1000); got != 600 {
		t.Fatalf("%d passed", got)
	}
	f.tick(t)
	if got := passed(f.all[1], who, who, false, 1000); got != 0 {
		t.Errorf("%d passed elsewhere", got)
	}
	v := f.all[1].Take(who, who, false)
	if s := v.Statuses(); len(s) != 1 || s[0].Remaining != 0 || v.Wait != 100*time.Millisecond {
		t.Errorf("%+v", v)
	}
	other := uuid.New()
	if got := passed(f.all[1], other, other, false, 600); got != 600 {
		t.Errorf("%d of another passed", got)
	}
}

// Usage that is read twice is charged once; usage that could not be read is
// charged later.
func TestTick_StoreFails_CountsOnce(t *testing.T) {
	f := newFleet(t, 2, limit.Config{Token: policy(t, "600/min")})
	passed(f.all[0], who, who, false, 100)
	f.tick(t)
	f.tick(t)
	f.tick(t)
	left := func() int64 { v := f.all[1].Take(who, who, false); return v.Statuses()[0].Remaining }
	if got := left(); got != 499 {
		t.Errorf("%d left", got)
	}
	passed(f.all[0], who, who, false, 100)
	f.store.fails = true
	for _, l := range f.all {
		if err := l.Tick(t.Context()); !errors.Is(err, errStore) {
			t.Errorf("error %v", err)
		}
	}
	if got := left(); got != 498 {
		t.Errorf("%d left while the store is unreachable", got)
	}
	f.store.fails = false
	f.tick(t)
	if got := left(); got != 397 {
		t.Errorf("%d left when it is reachable again", got)
	}
}

// Usage from before a process started may be old.
func TestTick_NewProcess_IgnoresEarlierUsage(t *testing.T) {
	f := newFleet(t, 1, limit.Config{Token: policy(t, "600/min")})
	passed(f.all[0], who, who, false, 300)
	f.tick(t)
	young := limit.New(f.store, limit.Config{Token: policy(t, "600/min"), Process: "young", Now: f.now})
	f.all = append(f.all, young)
	f.tick(t)
	if v := young.Take(who, who, false); v.Statuses()[0].Remaining != 599 {
		t.Errorf("%+v", v)
	}
	passed(f.all[0], who, who, false, 100)
	f.tick(t)
	if v := young.Take(who, who, false); v.Statuses()[0].Remaining != 498 {
		t.Errorf("%+v", v)
	}
}

func TestTick_Unchanged_RunsOneQuery(t *testing.T) {
	f := newFleet(t, 1, limit.Config{Token: policy(t, "600/min")})
	want := func(calls string) {
		t.Helper()
		f.store.calls = nil
		f.advance(time.Second)
		f.tick(t)
		if got := strings.Join(f.store.calls, " "); got != calls {
			t.Errorf("%s, want %s", got, calls)
		}
	}
	want("read")
	passed(f.all[0], who, who, false, 1)
	want("read") // not busy
	passed(f.all[0], who, who, false, 300)
	want("save read")
	for range 9 {
		want("read")
	}
	want("save read") // a report expires after a minute
	f.advance(time.Minute)
	want("delete read")
	want("read")
	if n := f.all[0].Counters(); n != 0 {
		t.Errorf("%d buckets are left", n)
	}
	if err := f.all[0].Close(t.Context()); err != nil || len(f.store.text) != 0 {
		t.Errorf("error %v, left %v", err, f.store.text)
	}
}

func TestTick_ManyBusyTokens_MemoryIsBounded(t *testing.T) {
	f := newFleet(t, 2, limit.Config{Token: policy(t, "10/s")})
	for range 2 {
		for range 5000 {
			id := uuid.New()
			passed(f.all[0], id, id, false, 10)
		}
		f.tick(t)
		if n := strings.Count(f.store.text["0"], `"id"`); n != limit.MaxShared {
			t.Errorf("%d counters are reported", n)
		}
		if n := f.all[1].Counters(); n != limit.MaxShared {
			t.Errorf("%d buckets", n)
		}
		f.advance(time.Second) // refills the buckets
		f.tick(t)
		if a, b := f.all[0].Counters(), f.all[1].Counters(); a != 0 || b != 0 {
			t.Errorf("%d and %d buckets are left", a, b)
		}
	}
	passed(f.all[0], who, who, false, 10)
	f.tick(t)
	if passed(f.all[1], who, who, false, 1) != 0 {
		t.Error("no other counter is reported")
	}
}

// Malformed usage is ignored, or charged with at most twice a client's quota.
func TestTick_MalformedUsage_IsIgnored(t *testing.T) {
	f := newFleet(t, 1, limit.Config{Token: policy(t, "10/s")})
	for i, text := range []string{"", "x", "{}", "null", "[{}]", `[{"kind":"address"}]`,
		`[{"kind":"account","id":"` + who.String() + `","used":5}]`,
		`[{"kind":"token","id":"` + who.String() + `","bucket":1,"used":-5}]`,
		`[{"kind":"token","id":"` + who.String() + `","bucket":1,"used":9223372036854775807}]`} {
		f.store.text = map[string]string{fmt.Sprint("x", i): text}
		f.tick(t)
	}
	f.advance(2 * time.Second)
	if got := passed(f.all[0], who, who, false, 20); got != 10 {
		t.Errorf("%d passed", got)
	}
}
