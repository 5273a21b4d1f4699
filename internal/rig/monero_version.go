package rig

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// MoneroProgram returns the path of monerod, monero-wallet-rpc or
// monero-wallet-cli. MONERO=current in the environment selects the version that
// tools/monero unpacks, MONERO=system the installed one. The default is the
// current version if it has been unpacked.
func MoneroProgram(tb testing.TB, program string) string {
	tb.Helper()
	switch version := os.Getenv("MONERO"); version {
	case "system":
		return Need(tb, program, "monero")
	case "", "current":
		cache, err := os.UserCacheDir()
		if err != nil {
			tb.Fatal(err)
		}
		path := filepath.Join(cache, "cardmint", "monero", program)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if version == "" {
			return Need(tb, program, "monero")
		}
		tb.Fatalf("MONERO=current, but there is no %s: run tools/monero", path)
	default:
		tb.Fatalf("MONERO=%s: must be current or system", version)
	}
	return ""
}

var helpTexts sync.Map // by path of the program

// KnowsFlag reports whether a program's help names a flag.
func KnowsFlag(tb testing.TB, path, flag string) bool {
	tb.Helper()
	text, known := helpTexts.Load(path)
	if !known {
		output, err := exec.Command(path, "--help").CombinedOutput()
		if err != nil {
			tb.Fatalf("%s --help: %v\n%s", path, err, output)
		}
		text, _ = helpTexts.LoadOrStore(path, output)
	}
	return bytes.Contains(text.([]byte), []byte(flag))
}
