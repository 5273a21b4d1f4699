//go:build !unix

package store

// lockSQLite relies on the system, which does not rename files that are open.
func lockSQLite(string) (release func(), err error) { return func() {}, nil }

func sameOwner(string, string) error { return nil }

func identifyFile(string) string { return "" }
