package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVariables(t *testing.T) {
	page := filepath.Join(t.TempDir(), "flags.md")
	write := func(text string) {
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# Flags\n\n| `--keys` | `CARDMINT_KEYS` | `cardmint.keys` | the key file |\n" +
		"| `--simulated` | `CARDMINT_SIMULATED` | off | see [Limits](x.md#limits) |\n| `--rate` | `CARDMINT_RATE` | | |\n")
	var out strings.Builder
	if err := variables(&out, page); err != nil {
		t.Fatal(err)
	}
	want := "\n# the key file\nCARDMINT_KEYS=/var/lib/cardmint/cardmint.keys\n\n# see Limits\n#CARDMINT_SIMULATED=false\n\n#CARDMINT_RATE=\n"
	if got := strings.TrimPrefix(out.String(), preface); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	write("\n| `--keys` | CARDMINT_KEYS | | |\n") // otherwise the package would lack a variable
	if err := variables(&out, page); err == nil {
		t.Error("a malformed row was omitted")
	}
}

func TestLibrary_AReplacedModuleIsWhatReplacesIt(t *testing.T) {
	ours := &debug.Module{Path: "example.com/client", Version: "v0.0.0", Replace: &debug.Module{Path: "./client"}}
	if got := library(ours, "v1.2.3").PackageURL; got != "pkg:golang/example.com/client@v1.2.3" {
		t.Error(got)
	}
	fork := &debug.Module{Path: "example.com/a", Version: "v1.0.0",
		Replace: &debug.Module{Path: "example.com/b", Version: "v1.1.0"}}
	if got := library(fork, "v1.2.3").PackageURL; got != "pkg:golang/example.com/b@v1.1.0" {
		t.Error(got)
	}
}
