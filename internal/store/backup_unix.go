//go:build unix

package store

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
	sqliteLocks     = 0x40000000
	sqliteLockBytes = 512
)

// lockSQLite keeps other processes away from the database at path until release
// is called. The error is ErrInUse if one has it open. It does not read the
// database, which may be damaged.
func lockSQLite(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK,
		&syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: sqliteLocks, Len: sqliteLockBytes})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return func() { _ = f.Close() }, nil
}

// sameOwner gives a file the owner of another one, if that exists. Otherwise a
// service could not open what root restored for it.
func sameOwner(as, file string) error {
	info, err := os.Stat(as)
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

// identifyFile names a file by its inode, and the machine since its last boot.
// It returns "" if it can't.
func identifyFile(path string) string {
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
