package rig

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq" // the driver for PostgreSQL
)

// Cluster is a PostgreSQL server of one test. It can be stopped, frozen and
// replicated.
type Cluster struct {
	*Process
	dir      string
	port     int
	settings []string
	admin    *sql.DB
}

// NewCluster starts a PostgreSQL server with settings of the form name=value.
// It ends with the test.
func NewCluster(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	c := prepareCluster(tb, settings)
	create := c.command(tb, "initdb", "-D", c.data(), "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C.UTF-8",
		"--encoding=UTF8")
	if out, err := create.CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	c.Start(tb)
	return c
}

// Standby starts a server that replicates c and is called name, for
// synchronous_standby_names. It ends with the test.
func (c *Cluster) Standby(tb testing.TB, name string, settings ...string) *Cluster {
	tb.Helper()
	s := prepareCluster(tb, settings)
	s.Follow(tb, c, name)
	return s
}

// Follow starts a stopped server as a standby of primary. It keeps its port,
// and loses its data.
func (c *Cluster) Follow(tb testing.TB, primary *Cluster, name string) {
	tb.Helper()
	if err := os.RemoveAll(c.data()); err != nil {
		tb.Fatal(err)
	}
	copying := c.command(tb, "pg_basebackup", "-D", c.data(), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync",
		"-d", fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", primary.port, name))
	if out, err := copying.CombinedOutput(); err != nil {
		tb.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	c.Start(tb)
}

// prepareCluster creates the directory of a server, which is deleted when the
// test ends.
func prepareCluster(tb testing.TB, settings []string) *Cluster {
	tb.Helper()
	notShort(tb, "PostgreSQL")
	postgresProgram(tb, "postgres")
	dir, err := os.MkdirTemp("", "rig-cluster") // not tb.TempDir, whose parents only root may enter
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	own(tb, dir)
	c := &Cluster{dir: dir, port: FreePort(tb), settings: settings}
	if c.admin, err = sql.Open("postgres", c.URL("postgres")); err != nil {
		tb.Fatal(err)
	}
	c.admin.SetMaxIdleConns(0) // leaves no broken connections after a crash
	tb.Cleanup(func() { _ = c.admin.Close() })
	return c
}

// Files returns the directory of the server: tables, write-ahead log, and log.
func (c *Cluster) Files() string { return c.dir }

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) command(tb testing.TB, program string, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command(postgresProgram(tb, program), args...)
	cmd.SysProcAttr, cmd.Dir = unprivileged(tb), c.dir
	return cmd
}

// URL returns the URL of a database of the server.
func (c *Cluster) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", c.port, database)
}

// Host returns the server's address.
func (c *Cluster) Host() string { return fmt.Sprintf("127.0.0.1:%d", c.port) }

// Start starts the server after Stop, and waits until it answers.
func (c *Cluster) Start(tb testing.TB) {
	tb.Helper()
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.port), "-c", "listen_addresses=127.0.0.1", "-c",
		"unix_socket_directories=" + c.dir,
		"-c", "fsync=off", "-c", "max_wal_size=128MB"}
	for _, s := range c.settings {
		args = append(args, "-c", s)
	}
	c.Process = launch(tb, c.command(tb, "postgres", args...))
	tb.Cleanup(func() { c.end(syscall.SIGQUIT) })
	c.Ready(tb, 30*time.Second, c.admin.Ping)
}

// Stop ends the server and its sessions at once, as a crash would.
func (c *Cluster) Stop() { c.end(syscall.SIGQUIT) }

// end stops the server with a signal, so that it ends its sessions and frees
// its shared memory. If that fails, end kills it.
func (c *Cluster) end(s syscall.Signal) {
	c.Thaw()
	_ = c.cmd.Process.Signal(s)
	select {
	case <-c.done:
	case <-time.After(5 * time.Second):
		c.Kill()
	}
}

// Freeze suspends all processes of the server, until Thaw.
func (c *Cluster) Freeze() { c.signalAll(syscall.SIGSTOP) }

// Thaw resumes the processes of a frozen server.
func (c *Cluster) Thaw() { c.signalAll(syscall.SIGCONT) }

// signalAll sends a signal to the server and to its children, which are not in
// its process group.
func (c *Cluster) signalAll(s syscall.Signal) {
	_ = c.cmd.Process.Signal(s)
	for _, pid := range childrenOf(c.PID()) {
		_ = syscall.Kill(pid, s)
	}
}

// childrenOf returns the processes that a process has started.
func childrenOf(parent int) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// pid (name) state parent ...; a name may have spaces and brackets.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// Promote makes a standby the primary. It retries, because replay may cancel
// queries on a standby, including this statement.
func (c *Cluster) Promote(tb testing.TB) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := c.admin.Exec("SELECT pg_promote()")
		var standby bool
		if c.admin.QueryRow("SELECT pg_is_in_recovery()").Scan(&standby) == nil && !standby {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("promote: %v", err)
		}
	}
}

// Exec runs a statement as the superuser.
func (c *Cluster) Exec(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	if _, err := c.admin.Exec(statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// Value runs a query for one value as the superuser.
func (c *Cluster) Value(tb testing.TB, query string, args ...any) (value string) {
	tb.Helper()
	if err := c.admin.QueryRow(query, args...).Scan(&value); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return value
}

// RequirePasswords makes the server require passwords, by the given method of
// pg_hba.conf, from every user except the superuser.
func (c *Cluster) RequirePasswords(tb testing.TB, method string) {
	tb.Helper()
	rules := "host all postgres 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 " +
		method + "\n"
	if err := os.WriteFile(filepath.Join(c.data(), "pg_hba.conf"), []byte(rules), 0o644); err != nil {
		tb.Fatal(err)
	}
	c.Exec(tb, "SELECT pg_reload_conf()")
}

// unprivileged returns the attributes of a process that may be a database
// server: they refuse to run as root.
func unprivileged(tb testing.TB) *syscall.SysProcAttr {
	tb.Helper()
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}
	}
	uid, gid := postgresUser(tb)
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// own gives a file to the user that servers run as.
func own(tb testing.TB, path string) {
	tb.Helper()
	if os.Getuid() != 0 {
		return
	}
	uid, gid := postgresUser(tb)
	if err := os.Chown(path, uid, gid); err != nil {
		tb.Fatal(err)
	}
}

func postgresUser(tb testing.TB) (uid, gid int) {
	tb.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		missing(tb, "PostgreSQL will not run as root, and there is no user named postgres (Debian package postgresql)")
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid
}
