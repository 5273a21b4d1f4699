package acceptance_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/cli"
	"github.com/cardmint/cardmint/internal/rig"
)

const programName = "cardmint"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == programName { // linked by build
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop)
		os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	dir, err := os.MkdirTemp("", "cardmint")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, programName)
	rig.Main(m, func() { _ = os.RemoveAll(dir) })
}

// binary is where build leaves the program.
var binary string

// build builds the program, once for all tests. With -short, it saves that
// time: the test binary acts as the program.
var build = sync.OnceValues(func() ([]byte, error) {
	if self, err := os.Executable(); err == nil && testing.Short() && os.Link(self, binary) == nil {
		return nil, nil
	}
	return exec.Command("go", "build", "-o", binary, "../../cmd/cardmint").CombinedOutput()
})

// skipIfShort skips the test if -short is set. Tests call it if they start the
// program many times, or wait for its background work.
func skipIfShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left out by -short: starts the program many times, or waits for it")
	}
}

// program is the real binary, built once, with its own database and keys.
type program struct {
	path string
	env  []string
}

// newProgram builds the binary. databaseURL may be "" for a new SQLite file.
func newProgram(tb testing.TB, databaseURL string) *program {
	tb.Helper()
	dir := tb.TempDir()
	if databaseURL == "" {
		databaseURL = "sqlite:" + filepath.Join(dir, "x.db")
	}
	if out, err := build(); err != nil {
		tb.Fatalf("build: %v\n%s", err, out)
	}
	return &program{path: binary, env: append(os.Environ(),
		"CARDMINT_DATABASE_URL="+databaseURL, "CARDMINT_KEYS="+filepath.Join(dir, "x.keys"), "CARDMINT_LISTEN=127.0.0.1:0",
		"CARDMINT_METRICS_LISTEN=127.0.0.1:0", "XDG_STATE_HOME="+dir)}
}

// run runs a command and returns its standard output, its standard error and
// its exit code.
func (p *program) run(args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out, errs strings.Builder
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that must succeed, and returns its standard output.
func (p *program) must(tb testing.TB, args ...string) string {
	tb.Helper()
	stdout, stderr, code := p.run(args...)
	if code != 0 {
		tb.Fatalf("%v: exit code %d\n%s", args, code, stderr)
	}
	return strings.TrimSpace(stdout)
}

// reconcile runs the command, which must report that everything agrees. Items
// that wait for an operator, such as unattributed payments, are allowed.
func (p *program) reconcile(t *testing.T) string {
	t.Helper()
	stdout, stderr, code := p.run("reconcile")
	if code != 0 && code != 3 {
		t.Errorf("reconcile: exit code %d\n%s\n%s", code, stdout, stderr)
	}
	wantOutput(t, stdout, "everything agrees")
	return stdout
}

// accountTemplate holds the files and the token of an account on SQLite.
var accountTemplate struct {
	sync.Once
	database, keys []byte
	token          string
}

// account creates keys, an account and a token with the commands of an
// operator. On SQLite, it does so once, and then copies the files.
func (p *program) account(tb testing.TB) (token string) {
	tb.Helper()
	database, lite := strings.CutPrefix(p.setting("CARDMINT_DATABASE_URL"), "sqlite:")
	if !lite || p.setting("CARDMINT_MODE") != "" {
		return p.newAccount(tb)
	}
	accountTemplate.Do(func() {
		first := newProgram(tb, "")
		token := first.newAccount(tb)
		var err error
		accountTemplate.database, err = os.ReadFile(strings.TrimPrefix(first.setting("CARDMINT_DATABASE_URL"), "sqlite:"))
		must(tb, err)
		accountTemplate.keys, err = os.ReadFile(first.setting("CARDMINT_KEYS"))
		must(tb, err)
		accountTemplate.token = token
	})
	if accountTemplate.token == "" {
		tb.Fatal("no account was created; see the failure of another test")
	}
	must(tb, os.WriteFile(database, accountTemplate.database, 0o600))
	must(tb, os.WriteFile(p.setting("CARDMINT_KEYS"), accountTemplate.keys, 0o600))
	return accountTemplate.token
}

func (p *program) newAccount(tb testing.TB) (token string) {
	tb.Helper()
	p.must(tb, "keys", "create")
	p.must(tb, "migrate")
	p.must(tb, "account", "create", "shop")
	return p.must(tb, "token", "create", "shop")
}

// server is a running process of the binary.
type server struct {
	*rig.Process
	url string
}

var urlLine = regexp.MustCompile(`url=(http://\S+)|(?m)^api: (http://\S+)$`)

// launch starts a command that serves, and does not wait for it.
func (p *program) launch(tb testing.TB, args ...string) *server {
	tb.Helper()
	cmd := exec.Command(p.path, args...)
	cmd.Env = p.env
	s := &server{Process: rig.Start(tb, cmd)}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%v printed:\n%s", args, s.Output())
		}
	})
	return s
}

// address returns the URL that the server has printed, or "".
func (s *server) address() string {
	found := urlLine.FindStringSubmatch(s.Output())
	if found == nil {
		return ""
	}
	return found[1] + found[2]
}

// serve starts a command that serves, and waits until it is ready.
func (p *program) serve(tb testing.TB, args ...string) *server {
	tb.Helper()
	s := p.launch(tb, args...)
	s.Ready(tb, 2*time.Minute, func() error {
		if s.url = s.address(); s.url == "" {
			return fmt.Errorf("no address printed yet")
		}
		response, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz: %s", response.Status)
		}
		return nil
	})
	return s
}

// awaitOutput waits until the server has printed or logged text.
func (s *server) awaitOutput(tb testing.TB, limit time.Duration, text string) {
	tb.Helper()
	s.Ready(tb, limit, func() error {
		if !strings.Contains(s.Output(), text) {
			return fmt.Errorf("%q is not printed yet", text)
		}
		return nil
	})
}

// stop sends SIGTERM, and fails the test unless the server exits with code 0.
func (s *server) stop(tb testing.TB) {
	tb.Helper()
	s.Signal(tb, syscall.SIGTERM)
	s.Wait(tb, 30*time.Second)
}

// await waits until a condition holds. It fails the test after limit.
func await(tb testing.TB, limit time.Duration, what string, holds func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited %s for: %s", limit, what)
		}
	}
}

func newClient(tb testing.TB, url, token string) *client.Client {
	tb.Helper()
	c, err := client.New(url, token, client.WithPollInterval(50*time.Millisecond, 200*time.Millisecond))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
