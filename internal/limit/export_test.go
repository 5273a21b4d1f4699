package limit

// MaxAddresses is how many addresses are counted apart.
const MaxAddresses = maxAddresses

// Addresses returns how many addresses are counted.
func (l *Limiter) Addresses() int { return len(l.failures.clients) }

// Buckets returns how many buckets there are.
func (l *Limiter) Buckets() int { return len(l.buckets) }

// MaxShared is how many buckets a process tells others of.
const MaxShared = maxShared
