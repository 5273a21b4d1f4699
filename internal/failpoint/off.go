//go:build !failpoints

package failpoint

// Hit does nothing.
func Hit(Name) {}
