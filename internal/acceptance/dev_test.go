package acceptance_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
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
	if len(commands) != 6 || strings.Count(strings.Join(commands, "\n"), "cm_test_") != 1 {
		t.Fatalf("%d commands, want 6, and the token in exactly one:\n%s", len(commands), strings.Join(commands, "\n"))
	}
	if !strings.HasPrefix(commands[4], p.path+" listen") || !strings.Contains(s.Output(), "second") {
		t.Errorf("no hint to run this program in a second terminal: %s", commands[4])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	paste := exec.CommandContext(ctx, "bash", "-c", strings.Join(commands[:4], "\n"))
	paste.Env = p.env
	out, err := paste.Output()
	if err != nil || strings.Count(string(out), `"status":"generated"`) != 2 ||
		!strings.Contains(string(out), `"card_number":"`) {
		t.Errorf("error %v\n%s", err, out)
	}
	s.stop(t)
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
		"confirming": "awaiting_payment", "paid": "generated", "late": "awaiting_payment", "expired": "awaiting_payment",
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
