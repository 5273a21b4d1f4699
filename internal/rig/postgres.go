package rig

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq" // the driver for PostgreSQL
)

var cluster struct {
	sync.Mutex
	process *Process
	dir     string
	port    int
	admin   *sql.DB
	made    atomic.Int64 // how many databases were created
}

func endPostgres() {
	cluster.Lock()
	defer cluster.Unlock()
	if cluster.process != nil {
		_ = cluster.admin.Close()
		// Not Kill: on SIGQUIT the server ends its sessions and frees its
		// shared memory.
		_ = cluster.process.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-cluster.process.done:
		case <-time.After(5 * time.Second):
			cluster.process.Kill()
		}
		_ = os.RemoveAll(cluster.dir)
	}
}

// Postgres returns the URL of a new, empty database, which is deleted when the
// test ends.
func Postgres(tb testing.TB) string {
	tb.Helper()
	return new(Databases).Postgres(tb)
}

func postgresURL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", cluster.port, database)
}

// startPostgres starts the server unless it is running already.
func startPostgres(tb testing.TB) {
	tb.Helper()
	notShort(tb, "PostgreSQL")
	initdb := postgresProgram(tb, "initdb")
	postgres := postgresProgram(tb, "postgres")
	cluster.Lock()
	defer cluster.Unlock()
	if cluster.process != nil {
		return
	}
	dir, err := os.MkdirTemp("", "rig-postgres")
	if err != nil {
		tb.Fatal(err)
	}
	own(tb, dir)
	data := filepath.Join(dir, "data")
	create := exec.Command(initdb, "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C.UTF-8",
		"--encoding=UTF8")
	create.SysProcAttr, create.Dir = unprivileged(tb), dir
	if out, err := create.CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	cluster.dir, cluster.port = dir, FreePort(tb)
	wal, durable := "128MB", "off" // it may be in memory
	if _, measures := tb.(*testing.B); measures {
		// As in production, commits are durable. A small write-ahead log would
		// cause constant checkpoints, and full page writes after each.
		wal, durable = "1GB", "on"
	}
	cmd := exec.Command(postgres, "-D", data, "-p", strconv.Itoa(cluster.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories="+dir, "-c", "max_connections=200", "-c", "fsync="+durable, "-c", "max_wal_size="+wal)
	cmd.SysProcAttr, cmd.Dir = unprivileged(tb), dir
	if cluster.admin, err = sql.Open("postgres", postgresURL("postgres")); err != nil {
		tb.Fatal(err)
	}
	cluster.process = launch(tb, cmd)
	cluster.process.Ready(tb, 30*time.Second, cluster.admin.Ping)
}

// postgresProgram returns the path of a PostgreSQL program. Debian does not
// install them in PATH.
func postgresProgram(tb testing.TB, name string) string {
	tb.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) > 0 {
		return found[len(found)-1]
	}
	return Need(tb, name, "postgresql")
}
