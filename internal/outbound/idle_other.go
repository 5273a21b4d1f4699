//go:build !unix

package outbound

// idle reports that a connection can't be used again: here nobody can tell without waiting.
func (c *conn) idle() bool { return false }
