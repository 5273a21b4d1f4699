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

// Store is where processes tell each other what they let pass. Running any of
// its methods twice is harmless.
type Store interface {
	// SaveUsage stores what a process let pass, in the place of what it stored
	// before.
	SaveUsage(ctx context.Context, process, usage string) error
	// DeleteUsage deletes that, and what processes left behind that were not
	// heard of for an hour.
	DeleteUsage(ctx context.Context, process string) error
	// UsageOfOthers returns what the other processes stored within the last so
	// long, by process.
	UsageOfOthers(ctx context.Context, process string, within time.Duration) (map[string]string, error)
}

const (
	maxShared   = 1000 // buckets that a process tells others of
	saveEvery   = 10 * time.Second
	liveFor     = time.Minute // after it has saved
	busyDivisor = 10          // others are told of a bucket once a tenth of its rate, or of its quota, is used
)

// usage is what a process let pass of one bucket. Totals, not differences: what
// is read twice or not at all does no harm.
type usage struct {
	Kind   string    `json:"kind"`
	ID     uuid.UUID `json:"id"`
	Bucket uint64    `json:"bucket"`
	Used   int64     `json:"used"`
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

// report is what another process told last.
type report struct {
	text string
	used map[key]usage
}

// Tick tells the other processes what this one has let pass, and counts what
// they have let pass. It is to be called about once a second, by one goroutine.
// It costs one query, and one more if there was anything to tell. Idle buckets
// are dropped.
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
	case text != x.saved || text != "" && now-x.savedAt >= saveEvery:
		err = x.store.SaveUsage(ctx, x.process, text)
		x.savedAt = now
	}
	if err != nil {
		return fmt.Errorf("tell of requests: %w", err)
	}
	x.saved = text
	all, err := x.store.UsageOfOthers(ctx, x.process, liveFor)
	if err != nil {
		return fmt.Errorf("ask for requests: %w", err)
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

// Close deletes what this process has told.
func (l *Limiter) Close(ctx context.Context) error {
	return l.peers.store.DeleteUsage(ctx, l.peers.process)
}

// collect drops idle buckets, and returns the usage of those that others should
// know of, or "" if there are none.
func (l *Limiter) collect() (string, error) {
	l.mu.Lock()
	now := l.clock()
	since := now - l.peers.tickAt
	l.peers.tickAt = now
	var all []usage
	for k, b := range l.buckets {
		p := l.policies[k.kind]
		if b.used == 0 && b.fullAt <= now {
			if b.shared > 0 {
				l.shared--
			}
			delete(l.buckets, k)
			continue
		}
		isBusy := time.Duration(b.used)*p.interval()*busyDivisor > since || b.used > 0 && (b.fullAt-now)*busyDivisor > p.Window
		if b.shared == 0 && isBusy && l.shared < maxShared {
			l.shared++
			b.shared = b.used
		} else if b.shared > 0 {
			b.shared += b.used
		}
		b.used = 0
		if b.shared > 0 {
			all = append(all, usage{k.kind.String(), k.id, b.number, b.shared})
		}
	}
	l.mu.Unlock()
	if len(all) == 0 {
		return "", nil
	}
	// so that what did not change reads the same
	slices.SortFunc(all, func(a, b usage) int { return cmp.Compare(a.Bucket, b.Bucket) })
	text, err := json.Marshal(all)
	return string(text), err
}

// apply counts what another process has let pass since it told of before, and
// returns what it told. Of a bucket that is new it counts all, at most twice
// the quota; but nothing if charge is false, because nobody knows when that
// was.
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
		if known := before[k]; known.Bucket == u.Bucket {
			n -= known.Used
		}
		p := l.policies[kind]
		if n = min(n, 2*p.Quota); n <= 0 || !charge {
			continue
		}
		b := l.bucket(k)
		b.fullAt = max(b.fullAt, now) + time.Duration(n)*p.interval()
	}
	return used
}

// kindOf returns the kind of that name, or -1.
func kindOf(name string) Kind {
	for kind := range Kind(kinds) {
		if kind.String() == name {
			return kind
		}
	}
	return -1
}
