//go:build !linux

package cli

// disableCoreDumps does nothing on this system.
func disableCoreDumps() {}
