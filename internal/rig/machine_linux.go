package rig

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Network is a switch with machines, all of them namespaces of the kernel. They
// end with the test, or with the test's process if that is killed, and leave
// nothing behind.
type Network struct {
	*Process
	prefix string // first three bytes of addresses, with a trailing dot
}

// NewNetwork creates a network. Its first address is this process. The test
// fails without root and namespaces.
func NewNetwork(tb testing.TB) *Network {
	tb.Helper()
	notShort(tb, "machines")
	if os.Getuid() != 0 {
		tb.Fatal("only root can start machines")
	}
	n := &Network{prefix: freeNetwork(tb)}
	n.Process = Start(tb, exec.Command("unshare", "--net", "sleep", "infinity"))
	n.Ready(tb, 10*time.Second, func() error { return ownNamespace(n.PID(), "net") })
	link := fmt.Sprintf("rig%d", n.PID())
	n.ip(tb, "link add bridge type bridge")
	n.ip(tb, "link set bridge up")
	run(tb, "ip", "link", "add", link, "type", "veth", "peer", "name", "test", "netns", strconv.Itoa(n.PID()))
	n.ip(tb, "link set test master bridge up")
	run(tb, "ip", "address", "add", n.Address(1)+"/24", "dev", link)
	run(tb, "ip", "link", "set", link, "up")
	return n
}

// freeNetwork returns the prefix of an unused network from the range reserved
// for benchmarks.
func freeNetwork(tb testing.TB) string {
	tb.Helper()
	taken, err := net.InterfaceAddrs()
	if err != nil {
		tb.Fatal(err)
	}
	for i := range 256 {
		prefix := fmt.Sprintf("198.18.%d.", (os.Getpid()+i)%256)
		if !slices.ContainsFunc(taken, func(a net.Addr) bool { return strings.HasPrefix(a.String(), prefix) }) {
			return prefix
		}
	}
	tb.Fatal("no network is free")
	return ""
}

// ownNamespace returns an error if a process shares a namespace with this one.
func ownNamespace(pid int, kind string) error {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return err
	}
	if ours, _ := os.Readlink("/proc/self/ns/" + kind); ours == theirs {
		return fmt.Errorf("process %d shares the %s namespace", pid, kind)
	}
	return nil
}

// Address returns an address of the network by its last byte.
func (n *Network) Address(last int) string { return n.prefix + strconv.Itoa(last) }

// Prefix returns the prefix of all addresses.
func (n *Network) Prefix() string { return n.prefix }

// ip runs a command of the switch.
func (n *Network) ip(tb testing.TB, command string) {
	tb.Helper()
	run(tb, "nsenter", append([]string{"-t", strconv.Itoa(n.PID()), "-n", "ip"}, strings.Fields(command)...)...)
}

func run(tb testing.TB, program string, args ...string) {
	tb.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// Machine is a container with its own processes and copies of /etc, /var and
// /run. The copies are deleted with it.
type Machine struct {
	Name, Address string

	network *Network
	anchor  *Process
	first   int    // pid of its first process, outside of the machine
	dir     string // its /etc, /var and /run
	link    string // its port of the switch
}

// inside prepares the directories, and reaps orphaned processes, as init must.
const inside = `
set -e
for name in etc var; do
  mkdir -p "$name/changed" "$name/work"
  mount -t overlay -o "lowerdir=/$name,upperdir=$PWD/$name/changed,workdir=$PWD/$name/work" overlay "/$name"
done
mount -t tmpfs -o mode=755 tmpfs /run
install -d -m 2775 -o postgres -g postgres /run/postgresql
install -d -m 755 /run/haproxy
install -d -m 1777 /run/lock
hostname "$NAME"
ip link set lo up
touch ready
sleep infinity &
wait
`

// Machine starts a machine. last is the last byte of its address; a machine with
// 0 shares the network of this process.
func (n *Network) Machine(tb testing.TB, name string, last int) *Machine {
	tb.Helper()
	dir, err := os.MkdirTemp("", "rig-machine")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	m := &Machine{Name: name, network: n, dir: dir, Address: n.Address(1)}
	args := []string{"--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc", "--propagation",
		"private"}
	if last > 0 {
		m.Address = n.Address(last)
		args = append(args, "--net")
	}
	cmd := exec.Command("unshare", append(args, "bash", "-c", inside)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "NAME="+name)
	m.anchor = Start(tb, cmd)
	m.anchor.Ready(tb, 10*time.Second, func() error {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	})
	m.first = childrenOf(m.anchor.PID())[0]
	if last > 0 {
		m.plugIn(tb, last)
	}
	return m
}

func (m *Machine) plugIn(tb testing.TB, last int) {
	tb.Helper()
	m.link = "port" + strconv.Itoa(last)
	m.network.ip(tb, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", m.link, m.first))
	m.network.ip(tb, "link set "+m.link+" master bridge up")
	m.Run(tb, fmt.Sprintf("ip address add %s/24 dev eth0 && ip link set eth0 up", m.Address))
}

// Cut silently drops all packets to and from the machine until Restore.
func (m *Machine) Cut(tb testing.TB) { m.network.ip(tb, "link set "+m.link+" nomaster") }

// Restore reconnects the machine.
func (m *Machine) Restore(tb testing.TB) { m.network.ip(tb, "link set "+m.link+" master bridge") }

// Path returns the path, in this process, of a file that was written below /etc
// or /var of the machine.
func (m *Machine) Path(path string) string {
	top, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return filepath.Join(m.dir, top, "changed", rest)
}

// Command returns a command of the machine's shell, run by root in the
// directory dir.
func (m *Machine) Command(dir, script string) *exec.Cmd {
	return exec.Command("nsenter", "-t", strconv.Itoa(m.first), "-a", "--wd="+dir, "bash", "-euo", "pipefail", "-c",
		script)
}

// Run runs a command in the machine's shell and returns its output. If the
// command fails, so does the test.
func (m *Machine) Run(tb testing.TB, script string) string {
	tb.Helper()
	return m.RunIn(tb, "/", script)
}

// RunIn is like Run, in a directory.
func (m *Machine) RunIn(tb testing.TB, dir, script string) string {
	tb.Helper()
	var out, errs bytes.Buffer
	cmd := m.Command(dir, script)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		tb.Fatalf("%s: %v\n%s\n%s%s", m.Name, err, script, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String())
}

// Signal sends a signal to all processes of the machine with one of the names.
func (m *Machine) Signal(s syscall.Signal, names ...string) {
	space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", m.first))
	found, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range found {
		name, _ := os.ReadFile(path)
		dir := filepath.Dir(path)
		if its, _ := os.Readlink(dir + "/ns/pid"); its != space || !slices.Contains(names, strings.TrimSpace(string(name))) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		_ = syscall.Kill(pid, s)
	}
}
