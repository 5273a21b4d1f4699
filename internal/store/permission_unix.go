//go:build unix

package store

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// access returns an error unless this process may read and write a file, or use
// a directory.
func access(path string) error {
	const execute, write, read = 1, 2, 4
	mode := uint32(read | write)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		mode |= execute
	}
	if err := syscall.Access(path, mode); err != nil {
		return err
	}
	return nil
}

// owner returns the name of a file's owner.
func owner(info fs.FileInfo) string {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "another user"
	}
	return nameOf(int(s.Uid))
}

// self returns the name of the user that this process runs as.
func self() string { return nameOf(os.Getuid()) }

func nameOf(uid int) string {
	id := strconv.Itoa(uid)
	u, err := user.LookupId(id)
	if err != nil {
		return "user " + id
	}
	return u.Username
}
