// Package rig starts real servers for tests: PostgreSQL, PgBouncer, monerod and
// monero-wallet-rpc.
//
// It imports no other package of cardmint, and only tests import it. Its
// servers listen on loopback or in a Network, keep their data in a temporary
// directory, and stop with the test, or with its process if that is killed.
// With -short, tests that need a server are skipped.
package rig

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Main runs the tests of a package, calls the cleanup functions, and stops the
// servers that the tests shared. It does not return. Packages that use Postgres
// or Monero must call it from TestMain.
func Main(m *testing.M, cleanup ...func()) {
	code := m.Run()
	for _, f := range cleanup {
		f()
	}
	endPostgres()
	endMonero()
	os.Exit(code)
}

// notShort skips the test if -short is set: starting a server takes seconds.
func notShort(tb testing.TB, server string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left out by -short: starts " + server)
	}
}

// Need returns the path of a program. If it is not installed, the test is
// skipped, or fails if CI is set in the environment.
func Need(tb testing.TB, program, debianPackage string) string {
	tb.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/local/bin", "/usr/bin", "/usr/sbin") {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
	}
	missing(tb, fmt.Sprintf("%s is not installed (Debian package %s)", program, debianPackage))
	return ""
}

func missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("CI") != "" {
		tb.Fatal(what)
	}
	tb.Skip("left out: " + what)
}

// Ports of FreePort are below the range of ephemeral ports. Otherwise an
// outgoing connection could take the port of a server that restarts.
const firstPort, lastPort = 10_000, 32_767

// FreePort returns a free loopback port. It is reserved for this process:
// FreePort binds the UDP port of the same number, which other processes check.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		sign, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			_ = sign.Close()
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		taken.Store(port, sign)
		return port
	}
	tb.Fatal("no free port was found")
	return 0
}

// taken keeps the UDP sockets of reserved ports from being garbage collected.
var taken sync.Map

// Process is a server that the rig started.
type Process struct {
	cmd    *exec.Cmd
	output *buffer
	done   chan struct{}
}

// Start starts a program that ends with the test. On Linux it also ends when
// the test's process is killed.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := launch(tb, cmd)
	tb.Cleanup(p.Kill)
	return p
}

func launch(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{cmd: cmd, output: &buffer{}, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.output
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.output
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithParent(cmd.SysProcAttr)
	started := make(chan error)
	// on Linux, the process ends with the thread that started it, so this
	// goroutine keeps the thread until then
	go func() {
		started <- startLocked(cmd)
		_ = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		tb.Fatalf("start %s: %v", cmd.Path, err)
	}
	return p
}

// PID returns the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}

// Kill kills the process and waits until it has ended. It may be called more
// than once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Wait waits until the process exits. The test fails if that takes longer than
// limit.
func (p *Process) Wait(tb testing.TB, limit time.Duration) {
	tb.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		tb.Fatalf("%s still runs after %s:\n%s", p.cmd.Path, limit, p.Output())
	}
}

// Output returns the output of the process so far, unless its command redirects
// it.
func (p *Process) Output() string { return p.output.String() }

// Ready waits until probe succeeds. If the process ends before, or limit has
// passed, the test fails with its output.
func (p *Process) Ready(tb testing.TB, limit time.Duration, probe func() error) {
	tb.Helper()
	deadline := time.After(limit)
	for {
		err := probe()
		if err == nil {
			return
		}
		select {
		case <-p.done:
			tb.Fatalf("%s ended: %v\n%s", p.cmd.Path, err, p.Output())
		case <-deadline:
			tb.Fatalf("%s is not ready after %s: %v\n%s", p.cmd.Path, limit, err, p.Output())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
