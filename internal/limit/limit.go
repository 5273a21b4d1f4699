// Package limit limits how many requests tokens and accounts may make, and how
// often an address may fail to authenticate.
//
// It imports none of ours. Requests are counted in memory, in token buckets;
// buckets that are full again are dropped. Processes tell each other through
// the store, about once a second, how much they let pass. A crash loses the
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
	kinds   = 3         // of requests that are authenticated
)

// String returns the name of the limit, in headers and in the store.
func (k Kind) String() string { return [...]string{"token", "account", "create", "address"}[k] }

// Config configures a limiter. The zero value limits nothing.
type Config struct {
	Token, Account, Create Policy
	// Address is for failures to authenticate.
	Address Policy
	// Process names this process among those that share a database. It is
	// different at each start.
	Process string
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Limiter counts requests. It is safe for concurrent use.
type Limiter struct {
	policies   [kinds]Policy
	now        func() time.Time
	start      time.Time
	failures   failures
	peers      peers
	mu         sync.Mutex
	buckets    map[key]*bucket
	lastBucket uint64 // the number of the newest bucket
	shared     int    // buckets that others are told of
}

type key struct {
	kind Kind
	id   uuid.UUID
}

// bucket is a token bucket, kept as the time at which it is full again (GCRA):
// a request moves that time on by what it takes to refill one, and is refused
// if it would be more than a window away.
type bucket struct {
	number   uint64        // of this bucket, in this process
	fullAt   time.Duration // since the limiter's start
	used     int64         // requests since the last Tick
	refusals refusalDelay
	shared   int64 // requests that others are told of, in total; 0 if they are not
}

// New returns a limiter. Only Tick uses the store.
func New(store Store, cfg Config) *Limiter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Limiter{
		policies: [kinds]Policy{cfg.Token, cfg.Account, cfg.Create}, now: cfg.Now, start: cfg.Now(),
		buckets:  map[key]*bucket{},
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

// Status is how one limit stands after a request.
type Status struct {
	Kind      Kind
	Remaining int64         // requests that may follow at once
	Reset     time.Duration // until there is more left
}

// Decision says whether a request may go on.
type Decision struct {
	// Wait is how long to wait before the request is repeated. 0 means that it
	// may go on.
	Wait time.Duration
	// Refused is the kind of the limit that the wait is for.
	Refused Kind
	// Delay is how long to keep the refusal back.
	Delay    time.Duration
	statuses [kinds]Status
	n        int
}

// Statuses returns how the limits stand that apply to the request.
func (v *Decision) Statuses() []Status { return v.statuses[:v.n] }

// Take counts a request. It is counted against each limit that applies, or
// against none if one of them refuses it.
func (l *Limiter) Take(token, account uuid.UUID, creates bool) Decision {
	var v Decision
	apply := [kinds]bool{l.policies[Token].On(), l.policies[Account].On(), creates && l.policies[Create].On()}
	ids := [kinds]uuid.UUID{token, account, account}
	var found [kinds]*bucket
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for kind := range Kind(kinds) {
		if !apply[kind] {
			continue
		}
		b := l.bucket(key{kind, ids[kind]})
		found[kind] = b
		if wait := l.policies[kind].wait(b.fullAt - now); wait > v.Wait {
			v.Wait, v.Refused = wait, kind
		}
	}
	if v.Wait > 0 {
		v.Delay = found[v.Refused].refusals.next(now)
	}
	for kind, b := range found {
		if b == nil {
			continue
		}
		p := l.policies[kind]
		if v.Wait == 0 {
			b.fullAt = max(b.fullAt, now) + p.interval()
			b.used++
		}
		missing := b.fullAt - now
		v.statuses[v.n] = Status{Kind: Kind(kind), Remaining: p.remaining(missing), Reset: p.reset(missing)}
		v.n++
	}
	return v
}

// bucket returns a bucket, which is new and full if there was none.
func (l *Limiter) bucket(k key) *bucket {
	b := l.buckets[k]
	if b == nil {
		l.lastBucket++
		b = &bucket{number: l.lastBucket}
		l.buckets[k] = b
	}
	return b
}

// clock returns the time since the start. It does not jump when the clock on
// the wall is set.
func (l *Limiter) clock() time.Duration { return l.now().Sub(l.start) }
