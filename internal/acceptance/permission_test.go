//go:build unix

package acceptance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

// nobodyUID is the id of a user without rights.
const nobodyUID = 65534

// runAsNobody runs a command of the program in a directory, as a user without
// rights if the tests run as root.
func (p *program) runAsNobody(t *testing.T, dir string, args ...string) (output string, code int) {
	t.Helper()
	program := filepath.Join(dir, "cardmint")
	if err := os.Link(p.path, program); err != nil {
		text, err := os.ReadFile(p.path)
		must(t, err)
		must(t, os.WriteFile(program, text, 0o755))
	}
	defer func() { _ = os.Remove(program) }()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = p.env
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestDatabase_NoPermission_FailsImmediately(t *testing.T) {
	t.Parallel()
	isRoot := os.Getuid() == 0
	for name, tt := range map[string]struct {
		owner          int // of the file
		file, dir      os.FileMode
		want           []string
		onlyIfTestRoot bool
	}{
		"another user's file": {0, 0o600, 0o777,
			[]string{"no permission to read and write the database file", "it belongs to root", "this process runs as "}, true},
		"read-only file": {nobodyUID, 0o400, 0o777,
			[]string{"no permission to read and write the database file", "(-r--------)", "this process runs as "}, false},
		"read-only directory": {nobodyUID, 0o600, 0o555,
			[]string{"no permission to read and write the directory of the database", "this process runs as "}, false},
	} {
		if tt.onlyIfTestRoot && !isRoot {
			continue
		}
		dir, data := t.TempDir(), t.TempDir()
		must(t, os.Chmod(filepath.Dir(dir), 0o711)) // lets the other user enter
		path := filepath.Join(data, "x.db")
		p := newProgram(t, "sqlite:"+path)
		p.must(t, "migrate")
		must(t, os.Chmod(path, tt.file))
		if isRoot {
			must(t, os.Chown(path, tt.owner, tt.owner))
		}
		must(t, os.Chmod(data, tt.dir))
		for _, command := range []string{"migrate", "wallet check"} {
			out, code := p.runAsNobody(t, dir, strings.Fields(command)...)
			if code != 1 || strings.Contains(out, "waits for others") || strings.Contains(out, "PASSWORD") {
				t.Errorf("%s: %s: exit code %d\n%s", name, command, code, out)
			}
			if command == "migrate" || strings.Contains(out, "no permission") { // without a node, only that is reported
				wantOutput(t, out, append(tt.want, "hint: ", "chown")...)
			}
		}
		must(t, os.Chmod(data, 0o700))
	}
}

func TestDatabase_RoleWithoutRights_IsExplained(t *testing.T) {
	t.Parallel()
	url := rig.Postgres(t)
	p := newProgram(t, url)
	db := rig.OpenSQL(t, url)
	for _, statement := range []string{
		"CREATE ROLE powerless LOGIN PASSWORD 'x'",
		"REVOKE ALL ON SCHEMA public FROM PUBLIC",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP ROLE powerless") })
	p.env = append(p.env, "PGOPTIONS=-c role=powerless")
	for _, want := range []string{"no schema has been selected", "permission denied for schema public"} {
		_, stderr, code := p.run("migrate")
		if code != 1 || strings.Contains(stderr, "waits for others") {
			t.Errorf("exit code %d", code)
		}
		wantOutput(t, stderr, want, "hint: the role of --database-url lacks rights")
		if _, err := db.Exec("GRANT USAGE ON SCHEMA public TO PUBLIC"); err != nil {
			t.Fatal(err)
		}
	}
}
