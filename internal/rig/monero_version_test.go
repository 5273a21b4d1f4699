package rig

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMoneroProgram_IsOfTheVersionThatIsAskedFor(t *testing.T) {
	home, path := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("PATH", path)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	install := func(file string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\necho '  --old-flag'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	want := func(version, program string) {
		t.Helper()
		t.Setenv("MONERO", version)
		if got := MoneroProgram(t, "monerod"); got != program {
			t.Errorf("MONERO=%q: got %s, want %s", version, got, program)
		}
	}
	system := install(filepath.Join(path, "monerod"))
	want("", system)
	current := install(filepath.Join(cache, "cardmint", "monero", "monerod"))
	want("", current)
	want("current", current)
	want("system", system)

	if !KnowsFlag(t, system, "--old-flag") || KnowsFlag(t, system, "--new-flag") {
		t.Error("the flags were not read from the help")
	}
}
