//go:build unix

package vault_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/cardmint/cardmint/internal/vault"
)

// When root changes the keys of a service with another user, the service must
// still be able to read them.
func TestChange_KeepsOwner(t *testing.T) {
	_, path := newVault(t)
	owner := os.Getuid()
	if owner == 0 { // only root can change the owner
		owner = 65534
		check(t, os.Chown(path, owner, owner))
	}
	_, err := vault.AddKey(path)
	check(t, err)
	info, err := os.Stat(path)
	check(t, err)
	if got := int(info.Sys().(*syscall.Stat_t).Uid); got != owner || info.Mode().Perm() != 0o600 {
		t.Errorf("the file belongs to user %d with mode %s, want %d and 0600", got, info.Mode().Perm(), owner)
	}
}
