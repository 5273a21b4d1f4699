// Package clock compares this machine's clock with other clocks. Quotes and
// rates expire by it, so an error of minutes must be detected.
//
// It imports no other package of this module. Readings are in memory only:
// after a crash they are taken again within seconds.
package clock

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Kind is the kind of a clock, and determines how far it is trusted.
type Kind int

// The kinds of clocks.
const (
	// Database is the database's clock. Cards and leases depend on both clocks,
	// so a difference is a fault, whichever of the two is wrong.
	Database Kind = iota
	// Server is the clock of a server on the internet. Two of them are trusted
	// if they agree.
	Server
	// Block is the time of the newest block of a chain. Miners can choose a
	// time up to two hours ahead, and it may be any time behind. Therefore it
	// only supports another clock, unless it is further ahead than consensus
	// allows.
	Block
)

const (
	// Limit is the largest tolerated difference between two clocks.
	Limit = 2 * time.Minute
	// blockLead is how far in the future the time of a block can be.
	blockLead = 2 * time.Hour
	// readingTTL is how long a reading is valid.
	readingTTL = 5 * time.Minute
)

// Reading is a comparison with another clock.
type Reading struct {
	Kind  Kind
	Name  string        // of the other clock
	Ahead time.Duration // of this machine's clock; negative if it is behind
	at    time.Time
}

// Watch holds the newest reading of each clock. It is safe for concurrent use.
type Watch struct {
	now  func() time.Time
	mu   sync.Mutex
	seen map[string]Reading
}

// New returns a Watch. Readings age by the clock now, which should be
// monotonic.
func New(now func() time.Time) *Watch { return &Watch{now: now, seen: map[string]Reading{}} }

// Record stores how far this machine's clock is ahead of another one.
func (w *Watch) Record(kind Kind, name string, ahead time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[name] = Reading{kind, name, ahead, w.now()}
}

// Readings returns the valid readings, by name.
func (w *Watch) Readings() []Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.seen, func(_ string, r Reading) bool { return w.now().Sub(r.at) > readingTTL })
	all := make([]Reading, 0, len(w.seen))
	for _, name := range slices.Sorted(maps.Keys(w.seen)) {
		all = append(all, w.seen[name])
	}
	return all
}

// Wrong returns why this machine's clock must be wrong, without addresses or
// names; "" if there is no reason.
func (w *Watch) Wrong() string {
	readings := w.Readings()
	for _, r := range readings {
		switch {
		case r.Kind == Database && r.Ahead.Abs() > Limit:
			return fmt.Sprintf("the clocks of this machine and of the database differ by %s", r.Ahead.Abs().Round(time.Minute))
		case r.Kind == Block && -r.Ahead > blockLead+Limit:
			return "this machine's clock is more than two hours behind the newest block"
		}
	}
	if by := agreed(readings, 1); by > 0 {
		return fmt.Sprintf("this machine's clock is %s ahead", by.Round(time.Minute))
	}
	if by := agreed(readings, -1); by > 0 {
		return fmt.Sprintf("this machine's clock is %s behind", by.Round(time.Minute))
	}
	return ""
}

// agreed returns the smallest difference to a server's clock if two clocks, and
// more than half of the servers, show that this machine's clock is wrong in a
// direction: 1 is ahead, -1 is behind. Otherwise it returns 0.
func agreed(readings []Reading, direction time.Duration) (least time.Duration) {
	servers, wrong, blocks := 0, 0, 0
	for _, r := range readings {
		by := r.Ahead * direction
		switch {
		case r.Kind == Server:
			if servers++; by > Limit {
				if wrong++; least == 0 || by < least {
					least = by
				}
			}
		case r.Kind == Block && direction < 0 && by > Limit:
			blocks = 1 // nodes of several coins may share a machine and its clock
		}
	}
	if 2*wrong <= servers || wrong+blocks < 2 {
		return 0
	}
	return least
}
