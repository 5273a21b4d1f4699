// Package limit limits how many requests tokens and accounts may make, and how
// often an address may fail to authenticate.
//
// It imports no other package of this module. Requests are counted in memory, in
// token buckets; full buckets are dropped. About once a second, processes
// exchange through the store how many requests they admitted. A crash loses the
// counts of its process, nothing else.
package limit

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// Kind is what a limit is for.
type Kind int

// Kinds of limits.
const (
	Token   Kind = iota // requests of a token
	Account             // requests of all tokens of an account
	Create              // cards that an account creates
	Address             // failures of an address to authenticate
	kinds   = 3         // kinds that Take counts
)

// String returns the name of the limit, in headers and in the store.
func (k Kind) String() string { return [...]string{"token", "account", "create", "address"}[k] }

// Config configures a limiter. The zero value limits nothing.
type Config struct {
	Token, Account, Create Policy
	// Address is for failures to authenticate.
	Address Policy
	// Process identifies this process among the replicas of a database. It must
	// change at each start.
	Process string
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Limiter counts requests. It is safe for concurrent use.
type Limiter struct {
	policies    [kinds]Policy
	now         func() time.Time
	start       time.Time
	failures    failures
	peers       peers
	mu          sync.Mutex
	counters    map[key]*counter
	lastCounter uint64 // number of the newest counter
	shared      int    // counters that are reported to other processes
}

type key struct {
	kind Kind
	id   uuid.UUID
}

// counter counts the requests of one token or account.
type counter struct {
	bucket
	number  uint64 // unique in this process
	used    int64  // requests since the last Tick
	shared  int64  // total that other processes know of; 0 if the counter is not reported
	refused bucket
}

// New returns a limiter. Only Tick and Close use the store.
func New(store Store, cfg Config) *Limiter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Limiter{
		policies: [kinds]Policy{cfg.Token, cfg.Account, cfg.Create}, now: cfg.Now, start: cfg.Now(),
		counters: map[key]*counter{},
		failures: failures{policy: cfg.Address}, peers: peers{store: store, process: cfg.Process},
	}
}

// Policy returns the policy of a kind.
func (l *Limiter) Policy(kind Kind) Policy {
	if kind == Address {
		return l.failures.policy
	}
	return l.policies[kind]
}

// Status is the state of one limit after a request.
type Status struct {
	Kind      Kind
	Remaining int64         // requests that are admitted now
	Reset     time.Duration // until Remaining grows
}

// Decision is whether a request is admitted.
type Decision struct {
	// Wait is how long to wait before the request is repeated. 0 means that it
	// is admitted.
	Wait time.Duration
	// Refused is the kind of the limit that the wait is for.
	Refused Kind
	// Delay is how long to delay the refusal.
	Delay    time.Duration
	statuses [kinds]Status
	n        int
}

// Statuses returns the state of each limit that applies to the request.
func (d *Decision) Statuses() []Status { return d.statuses[:d.n] }

// Take counts a request. It is charged to each limit that applies, or to none if
// one of them refuses it.
func (l *Limiter) Take(token, account uuid.UUID, creates bool) Decision {
	var d Decision
	apply := [kinds]bool{l.policies[Token].On(), l.policies[Account].On(), creates && l.policies[Create].On()}
	ids := [kinds]uuid.UUID{token, account, account}
	var found [kinds]*counter
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for kind := range Kind(kinds) {
		if !apply[kind] {
			continue
		}
		c := l.counter(key{kind, ids[kind]})
		found[kind] = c
		if wait := c.wait(l.policies[kind], now); wait > d.Wait {
			d.Wait, d.Refused = wait, kind
		}
	}
	if d.Wait > 0 {
		d.Delay = found[d.Refused].refused.refuse(now)
	}
	for kind, c := range found {
		if c == nil {
			continue
		}
		p := l.policies[kind]
		if d.Wait == 0 {
			c.charge(p, 1, now)
			c.used++
		}
		d.statuses[d.n] = Status{Kind: Kind(kind), Remaining: c.remaining(p, now), Reset: c.reset(p, now)}
		d.n++
	}
	return d
}

// counter returns a counter. A new one has a full bucket.
func (l *Limiter) counter(k key) *counter {
	c := l.counters[k]
	if c == nil {
		l.lastCounter++
		c = &counter{number: l.lastCounter}
		l.counters[k] = c
	}
	return c
}

// clock returns the time since the start. It is monotonic.
func (l *Limiter) clock() time.Duration { return l.now().Sub(l.start) }
