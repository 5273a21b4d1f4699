package limit

// MostAddresses is how many addresses are counted apart.
const MostAddresses = mostAddresses

// Addresses returns how many addresses are counted.
func (l *Limiter) Addresses() int { return len(l.failures.clients) }

// Buckets returns how many buckets there are.
func (l *Limiter) Buckets() int { return len(l.buckets) }

// MostShared is how many buckets a process tells others of.
const MostShared = mostShared
