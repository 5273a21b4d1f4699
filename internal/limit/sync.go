package limit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Store is where processes exchange how many requests they admitted. Running any
// of its methods twice is harmless.
type Store interface {
	// SaveUsage stores the usage of a process, and replaces its previous one.
	SaveUsage(ctx context.Context, process, usage string) error
	// DeleteUsage deletes the usage of a process, and of all processes that
	// have not stored any for an hour.
	DeleteUsage(ctx context.Context, process string) error
	// UsageOfOthers returns the usage that the other processes stored within d,
	// by process.
	UsageOfOthers(ctx context.Context, process string, d time.Duration) (map[string]string, error)
}

const (
	maxShared    = 1000 // counters that a process reports
	saveInterval = 10 * time.Second
	usageTTL     = time.Minute // since the usage was saved
	// A counter is reported once it uses a busyDivisor-th of its rate or quota.
	busyDivisor = 10
)

// usage is how many requests a process admitted by one counter. It is a total: a
// usage that is read twice or never does no harm.
type usage struct {
	Kind    string    `json:"kind"`
	ID      uuid.UUID `json:"id"`
	Counter uint64    `json:"bucket"`
	Used    int64     `json:"used"`
}

// peers is the state of Tick. Only Tick and Close use it.
type peers struct {
	store   Store
	process string
	tickAt  time.Duration
	saved   string // the text in the store; empty if there is none
	savedAt time.Duration
	known   map[string]report // by process; nil before the first Tick
}

// report is the last usage of another process.
type report struct {
	text string
	used map[key]usage
}

// Tick reports the requests of this process to its peers, and counts theirs.
// Call it about once a second, from one goroutine. It runs one query, and one
// more if the report changed. It drops idle counters.
func (l *Limiter) Tick(ctx context.Context) error {
	text, err := l.collect()
	if err != nil {
		return err
	}
	x := &l.peers
	now := l.clock()
	switch {
	case text == "" && (x.saved != "" || x.known == nil):
		err = x.store.DeleteUsage(ctx, x.process)
	case text != x.saved || text != "" && now-x.savedAt >= saveInterval:
		err = x.store.SaveUsage(ctx, x.process, text)
		x.savedAt = now
	}
	if err != nil {
		return fmt.Errorf("save usage: %w", err)
	}
	x.saved = text
	all, err := x.store.UsageOfOthers(ctx, x.process, usageTTL)
	if err != nil {
		return fmt.Errorf("read usage: %w", err)
	}
	known := make(map[string]report, len(all))
	for process, text := range all {
		before := x.known[process]
		if text == before.text {
			known[process] = before
			continue
		}
		known[process] = report{text, l.apply(text, before.used, x.known != nil)}
	}
	x.known = known
	return nil
}

// Close deletes the report of this process.
func (l *Limiter) Close(ctx context.Context) error {
	return l.peers.store.DeleteUsage(ctx, l.peers.process)
}

// collect drops idle counters, and returns the usage of the busy ones, or "" if
// there are none.
func (l *Limiter) collect() (string, error) {
	l.mu.Lock()
	now := l.clock()
	since := now - l.peers.tickAt
	l.peers.tickAt = now
	var all []usage
	for k, c := range l.counters {
		p := l.policies[k.kind]
		missing := c.missing(now)
		if c.used == 0 && missing == 0 {
			if c.shared > 0 {
				l.shared--
			}
			delete(l.counters, k)
			continue
		}
		busy := time.Duration(c.used)*p.interval()*busyDivisor > since || c.used > 0 && missing*busyDivisor > p.Window
		if c.shared == 0 && busy && l.shared < maxShared {
			l.shared++
			c.shared = c.used
		} else if c.shared > 0 {
			c.shared += c.used
		}
		c.used = 0
		if c.shared > 0 {
			all = append(all, usage{k.kind.String(), k.id, c.number, c.shared})
		}
	}
	l.mu.Unlock()
	if len(all) == 0 {
		return "", nil
	}
	// in a stable order, so that an unchanged report is the same text
	slices.SortFunc(all, func(a, b usage) int { return cmp.Compare(a.Counter, b.Counter) })
	text, err := json.Marshal(all)
	return string(text), err
}

// apply charges what another process has admitted since its previous report, and
// returns its usage. A counter that is new is charged in full, up to twice the
// quota; but not at all if charge is false, because the requests may be old.
func (l *Limiter) apply(text string, before map[key]usage, charge bool) map[key]usage {
	var all []usage
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil // of another version
	}
	used := make(map[key]usage, len(all))
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for _, u := range all[:min(len(all), maxShared)] {
		kind := kindOf(u.Kind)
		if kind < 0 || !l.policies[kind].On() {
			continue
		}
		k := key{kind, u.ID}
		used[k] = u
		n := u.Used
		if known := before[k]; known.Counter == u.Counter {
			n -= known.Used
		}
		p := l.policies[kind]
		if n = min(n, 2*p.Quota); n > 0 && charge {
			l.counter(k).charge(p, n, now)
		}
	}
	return used
}

// kindOf returns the kind with a name, or -1.
func kindOf(name string) Kind {
	for kind := range Kind(kinds) {
		if kind.String() == name {
			return kind
		}
	}
	return -1
}
