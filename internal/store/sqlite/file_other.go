//go:build !unix

package sqlite

// Lock relies on the system, which does not rename files that are open.
func Lock(string) (release func(), err error) { return func() {}, nil }

// CopyOwner does nothing.
func CopyOwner(string, string) error { return nil }

// FileID returns "".
func FileID(string) string { return "" }
