package acceptance_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// printedCommands returns the commands that dev prints.
func printedCommands(t *testing.T, s *server) []string {
	t.Helper()
	var commands []string
	for _, found := range regexp.MustCompile(`(?m)^  (.+)$`).FindAllStringSubmatch(s.Output(), -1) {
		commands = append(commands, found[1])
	}
	return commands
}

func TestDev_PrintedCommands_RunInShell(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: starts a service, and curl for each line")
	}
	t.Parallel()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	p := newProgram(t, "")
	s := p.serve(t, "dev")
	commands := printedCommands(t, s)
	if len(commands) != 5 || commands[0] != p.path+" card create 150" || !strings.Contains(s.Output(), "second") {
		t.Fatalf("not the program that was started, in a second terminal:\n%s", s.Output())
	}
	for _, line := range commands {
		if len(line) > 78 && !strings.Contains(line, p.path) {
			t.Errorf("too long for a terminal: %s", line)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	script := append(commands[:2:2], commands[3], commands[4],
		`curl -sS "$CARDMINT_URL/api/cards" -H "Authorization: Bearer $CARDMINT_TOKEN"`)
	paste := exec.CommandContext(ctx, "bash", "-ec", strings.Join(script, "\n"))
	paste.Env = p.env
	out, err := paste.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^number +99\d{14}$`).Match(out) ||
		!strings.Contains(string(out), `"status":"generated"`) {
		t.Errorf("error %v\n%s", err, out)
	}
	s.stop(t)
}

func TestDev_Start_PrintsBannerWithoutLog(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	s := p.serve(t, "dev", "--seed-demo")
	if out := s.Output(); !strings.HasPrefix(out, "api: ") || strings.Contains(out, "level=") {
		t.Errorf("printed\n%s", out)
	}
	p.must(t, "card", "create", "150")
	s.awaitOutput(t, 10*time.Second, "route=/api/cards status=201")
	for _, line := range strings.Split(s.Output(), "\n") {
		if strings.Contains(line, "level=") && !regexp.MustCompile(`^time=\d\d:\d\d:\d\d level=`).MatchString(line) {
			t.Errorf("not a short line: %s", line)
		}
	}
	s.stop(t)
	p = newProgram(t, "")
	s = p.serve(t, "dev", "--log-level", "debug")
	wantOutput(t, s.Output(), "epoch began")
	s.stop(t)
}

func TestDev_AllInterfaces_PrintsLoopbackAddress(t *testing.T) {
	t.Parallel()
	s := newProgram(t, "").serve(t, "dev", "--listen", "0.0.0.0:0")
	if out := s.Output(); !regexp.MustCompile(`^api: http://127\.0\.0\.1:\d+\n`).MatchString(out) {
		t.Errorf("printed\n%s", out)
	}
}

func TestDev_Interrupted_ExitsWithZeroAndRemovesState(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	state := filepath.Join(p.setting("XDG_STATE_HOME"), "cardmint", "dev.json")
	s := p.serve(t, "dev")
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, error %v", info, err)
	}
	s.Signal(t, syscall.SIGINT)
	s.Wait(t, 30*time.Second) // fails unless the exit code is 0
	if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", state, err)
	}
	_, stderr, code := p.run("card", "create", "150")
	if code != 1 || !strings.Contains(stderr, "hint: start a sandbox in another terminal: "+p.path+" dev") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

func TestDev_SeedDemo_HasCardInEveryState(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	s := p.serve(t, "dev", "--seed-demo")
	var cards []struct {
		UUID    string `json:"uuid"`
		Status  string `json:"status"`
		Payment struct {
			State string `json:"state"`
		} `json:"payment"`
	}
	if err := json.Unmarshal([]byte(p.must(t, "card", "list", "--json")), &cards); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range cards {
		got[c.Payment.State] = c.Status
		if !strings.Contains(s.Output(), c.UUID) {
			t.Errorf("%s is not printed", c.UUID)
		}
	}
	for state, status := range map[string]string{"unpaid": "awaiting_payment", "detected": "awaiting_payment",
		"underpaid":  "awaiting_payment",
		"confirming": "awaiting_payment", "canceled": "awaiting_payment", "paid": "generated",
		"late": "awaiting_payment", "expired": "awaiting_payment",
		"reversed": "generated"} {
		if got[state] != status {
			t.Errorf("status of the %s card is %q, want %q", state, got[state], status)
		}
	}
	s.stop(t)
	s = p.serve(t, "dev", "--seed-demo")
	wantOutput(t, s.Output(), "the database has cards already")
	s.stop(t)
}

// The address is printed at every log level: without it, clients can't find the
// service.
func TestServe_LogLevelError_StillPrintsAddress(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	p.account(t)
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150", "--log-level", "error")
	wantOutput(t, s.Output(), "mode=test", "url=http://127.0.0.1:")
	s.stop(t)
}

func TestCLI_Typo_SuggestsCorrection(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "")
	if p.must(t, "help", "card", "resolve") != p.must(t, "card", "resolve", "--help") || p.must(t, "help") != p.must(t) {
		t.Error("help and --help differ")
	}
	if p.must(t, "--version") != p.must(t, "version") {
		t.Error("--version and version differ")
	}
	var v struct{ Version, Go string }
	if err := json.Unmarshal([]byte(p.must(t, "version", "--json")), &v); err != nil || v.Version == "" || v.Go == "" {
		t.Errorf("%+v, %v", v, err)
	}
	for want, args := range map[string][]string{
		`did you mean "trigger"?`:    {"triger", "card.generated"},
		`did you mean "--attention"`: {"card", "list", "--atention"},
		"unexpected argument nosuch": {"help", "nosuch"},
	} {
		if _, stderr, code := p.run(args...); code != 2 || !strings.Contains(stderr, want) ||
			!strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%v: exit code %d, %q", args, code, stderr)
		}
	}
	if _, stderr, _ := p.run("serv", "--color", "always"); strings.Contains(stderr, "\x1b[") {
		t.Errorf("%q", stderr) // the flag was not parsed
	}
	if _, stderr, _ := p.run("keys", "list", "--color", "always"); !strings.Contains(stderr, "\x1b[31mcardmint:\x1b[0m") {
		t.Errorf("%q", stderr)
	}
}

func TestCompletion_Bash_CompletesWords(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	p := newProgram(t, "")
	for words, want := range map[string]string{
		"card li":               "list",
		"card list --state un":  "unpaid underpaid",
		"card list --state = l": "late", // bash splits --state=l into words
		"stock import ":         "",     // bash completes file names
		"wallet ":               "check rescan claim",
	} {
		script := `source <("$1" completion bash)
			IFS=' ' read -ra typed <<< "$2"; [[ $2 == *' ' ]] && typed+=("")
			COMP_WORDS=("$1" "${typed[@]}"); COMP_CWORD=${#typed[@]}
			_cardmint; complete -p cardmint; echo "${COMPREPLY[*]}"`
		out, err := exec.Command("bash", "-c", script, "bash", p.path, words).CombinedOutput()
		if string(out) != "complete -o default -F _cardmint cardmint\n"+want+"\n" || err != nil {
			t.Errorf("%q: %q, %v", words, out, err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := p.must(t, "completion", shell)
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not installed", shell)
			continue
		}
		if out, err := exec.Command(shell, "-n", writeFile(t, "completion", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}
