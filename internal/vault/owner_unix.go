//go:build unix

package vault

import (
	"fmt"
	"os"
	"syscall"
)

// keepOwner gives a new file the owner of the file at path: an operator may be
// another user than the service.
func keepOwner(path string, f *os.File) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known || int(owner.Uid) == os.Getuid() {
		return nil
	}
	if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
		return fmt.Errorf("keep its owner: %w", err)
	}
	return nil
}
