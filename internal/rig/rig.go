// Package rig starts real servers for tests: PostgreSQL, monerod and monero-wallet-rpc.
//
// It imports nothing of ours and is imported by tests only. What it starts listens on loopback, keeps its data in a
// temporary directory, and ends with the test, or with the test's process if that is killed. With -short it starts
// nothing: the tests that ask for a server are skipped.
package rig

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Main runs the tests of a package and then ends the servers they shared. A package that uses Postgres or Monero calls it from
// its TestMain. cleanup runs when the tests are done.
func Main(m *testing.M, cleanup ...func()) {
	code := m.Run()
	for _, f := range cleanup {
		f()
	}
	endPostgres()
	endMonero()
	os.Exit(code)
}

// notShort skips a test that needs a server if -short is set, which asks for an answer within seconds.
func notShort(tb testing.TB, server string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left out by -short: starts " + server)
	}
}

// Need returns the path of a program. If it is not installed the test is skipped, or fails where CI is set.
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

// FreePort returns a port of loopback that nobody listens on.
func FreePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// Process is a server that the rig started.
type Process struct {
	cmd    *exec.Cmd
	output *buffer
	done   chan struct{}
}

// Start starts a program that ends with the test. On Linux it also ends when the test's process is killed.
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
	go func() { // the thread that starts a process must live as long as it does, for its death to be noticed
		started <- startLocked(cmd)
		_ = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		tb.Fatalf("start %s: %v", cmd.Path, err)
	}
	return p
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}

// Kill ends the process at once and waits until it is gone. It may be called more than once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Wait waits until the process has ended by itself.
func (p *Process) Wait(tb testing.TB, limit time.Duration) {
	tb.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		tb.Fatalf("%s still runs after %s:\n%s", p.cmd.Path, limit, p.Output())
	}
}

// Output returns what the process has printed so far, unless its command sent that elsewhere.
func (p *Process) Output() string { return p.output.String() }

// Ready waits until probe succeeds; if the process ends before, the test fails with its output.
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
