package limit

// MaxAddresses is how many addresses are counted separately.
const MaxAddresses = maxAddresses

// Addresses returns how many buckets addresses have.
func (l *Limiter) Addresses() int { return len(l.failures.clients) }

// Counters returns how many counters there are.
func (l *Limiter) Counters() int { return len(l.counters) }

// MaxShared is how many counters a process reports.
const MaxShared = maxShared
