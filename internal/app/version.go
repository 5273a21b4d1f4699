package app

import "runtime/debug"

// release is the version of a release, set by the linker.
var release string

// Version returns the version of the release. Other builds have the version of
// the module, which go install sets.
func Version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
