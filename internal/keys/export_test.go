package keys

// InPagesOf has a rotator replace so many rows at once.
func (r *Rotator) InPagesOf(n int) *Rotator {
	r.page = n
	return r
}
