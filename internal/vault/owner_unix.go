//go:build unix

package vault

import (
	"fmt"
	"os"
	"syscall"
)

// keepOwner changes the owner of a new file to the owner of the file at path,
// if an operator runs the command as another user than the service.
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
