package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/cardmint/cardmint/internal/app"
)

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
	return c.write(g, versionJSON{app.Version(), runtime.Version()}, func(w io.Writer) {
		fmt.Fprintln(w, "cardmint", app.Version())
	})
}
