// Package vaulttest opens vaults for tests.
package vaulttest

import (
	"path/filepath"
	"testing"

	"github.com/cardmint/cardmint/internal/vault"
)

// Create creates a key file for the test, and returns its path.
func Create(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "x.keys")
	if err := vault.Create(path); err != nil {
		tb.Fatal(err)
	}
	return path
}

// New opens a vault with a new key file.
func New(tb testing.TB) *vault.Vault {
	tb.Helper()
	v, err := vault.Open(Create(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return v
}
