//go:build unix

package outbound

import (
	"errors"
	"net"
	"syscall"
)

// silent reports whether there is nothing to read from a connection, not even
// its end. It does not wait.
func silent(tcp net.Conn) bool {
	raw, ok := tcp.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = control.Read(func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), make([]byte, 1))
		nothing = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && nothing
}
