package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// release is the version that 'make release' has the linker write, which a
// package says however its sources were fetched.
var release string

type versionCommand struct {
	output `embed:""`
}

type versionJSON struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}

func (versionCommand) Help() string {
	return "Examples:\n  cardmint version\n  cardmint --version" + jsonHelp(versionJSON{})
}

// Run prints the version.
func (c versionCommand) Run(g *globals) error {
	return c.write(g, versionJSON{version(), runtime.Version()}, func(w io.Writer) {
		fmt.Fprintln(w, "cardmint", version())
	})
}

// version returns the version of the release, else the module's, which go
// install sets.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
