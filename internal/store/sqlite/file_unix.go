//go:build unix

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// SQLite locks these bytes of a database. In WAL mode every connection that has
// read holds a shared lock until it is closed.
const (
	lockedAt    = 0x40000000
	lockedBytes = 512
)

// Lock excludes other processes from the database at path until release is
// called. The error is ErrLocked if a process has it open. Lock does not read
// the database, which may be corrupt.
func Lock(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK,
		&syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: lockedAt, Len: lockedBytes})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return func() { _ = f.Close() }, nil
}

// CopyOwner gives a file the owner of another one, if that exists. Otherwise a
// service could not open a database that root has restored.
func CopyOwner(from, file string) error {
	info, err := os.Stat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	return os.Chown(file, int(owner.Uid), int(owner.Gid))
}

// FileID identifies a file by its inode and the boot of the machine. It is "" if
// these are not known.
func FileID(path string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s/%d/%d", bytes.TrimSpace(boot), file.Dev, file.Ino)
}
