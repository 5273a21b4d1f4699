package keys

// InPagesOf sets the number of rows in a page.
func (r *Rotator) InPagesOf(n int) *Rotator {
	r.page = n
	return r
}
