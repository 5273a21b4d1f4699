package rig

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// PgBouncer starts a PgBouncer in front of the database at the URL target, and
// returns the URL of that database through it. settings are lines of its
// configuration, of the form name = value. It ends with the test.
func PgBouncer(tb testing.TB, target string, settings ...string) string {
	tb.Helper()
	program := Need(tb, "pgbouncer", "pgbouncer")
	to, err := url.Parse(target)
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "rig-pgbouncer")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	own(tb, dir)
	port := FreePort(tb)
	config := fmt.Sprintf(
		"[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"+
			"auth_type = any\nauth_file =\n", to.Hostname(), to.Port(), port)
	config = strings.Replace(config, "* = ", "* = user="+to.User.Username()+" ", 1) + strings.Join(settings, "\n") + "\n"
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(program, path)
	cmd.SysProcAttr, cmd.Dir = unprivileged(tb), dir
	process := Start(tb, cmd)
	to.Host = fmt.Sprintf("127.0.0.1:%d", port)
	db, err := sql.Open("postgres", to.String())
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	process.Ready(tb, 10*time.Second, db.Ping)
	return to.String()
}
