//go:build unix

package outbound

import (
	"errors"
	"syscall"
)

// idle reports whether the other side has neither hung up nor said anything since the last exchange. It does not wait.
func (c *conn) idle() bool {
	raw, ok := c.tcp.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = control.Read(func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), make([]byte, 1))
		silent = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && silent
}
