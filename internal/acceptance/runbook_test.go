package acceptance_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

// runbook runs the commands of each page of docs/operate, on a host with a
// service.
var runbook = map[string]func(*host){
	"README.md":       (*host).index,
	"alarms.md":       (*host).alarms,
	"money.md":        (*host).money,
	"restore.md":      (*host).restore,
	"worker.md":       (*host).worker,
	"wallet-lost.md":  (*host).walletLost,
	"split-brain.md":  (*host).splitBrain,
	"first-wallet.md": (*host).firstWallet,
	"secrets.md":      (*host).secrets,
	"rates.md":        (*host).rates,
	"supply.md":       (*host).supply,
	"upgrade.md":      (*host).upgrade,
	"going-live.md":   (*host).goingLive,
	"failover.md":     (*host).failover,
	"disk-full.md":    (*host).diskFull,
}

// testedElsewhere maps pages to the tests outside TestRunbook that run their
// commands.
var testedElsewhere = map[string]string{
	"high-availability.md": "make ha: TestHA_LeaderFails_LosesNoAcknowledgedOrder",
	"backup-pgbackrest.md": "make ha: TestHA_PointInTimeRestore_SellsNoAddressTwice",
	"install.md":           "make install-check",
	"reverse-proxy.md":     "make install-check",
}

// stubbed maps commands that do nothing on the host of a test to the reason.
// Besides, install ignores the owner, because tests create no users.
var stubbed = map[string]string{
	"apt-get":  "packages are installed already",
	"adduser":  "tests create no users",
	"chown":    "tests create no users",
	"podman":   "make image runs the container",
	"promtool": "make alarms runs Prometheus",
}

// waitLimit is the longest wait for background work of the service. It is long
// enough for a busy machine.
const waitLimit = 3 * time.Minute

// TestRunbook runs every command of the operator's pages as written. Each page
// has its own host and service.
func TestRunbook(t *testing.T) {
	found, err := filepath.Glob("../../docs/operate/*.md")
	must(t, err)
	for _, path := range found {
		page := filepath.Base(path)
		run := runbook[page]
		if len(shellBlocks(t, "operate/"+page)) == 0 {
			continue
		}
		if run == nil {
			if testedElsewhere[page] == "" {
				t.Errorf("%s: no test runs its commands", page)
			}
			continue
		}
		t.Run(strings.TrimSuffix(page, ".md"), func(t *testing.T) {
			skipIfShort(t)
			t.Parallel()
			h := newHost(t, page)
			run(h)
			h.allRan()
		})
	}
	for page := range runbook {
		if _, err := os.Stat("../../docs/operate/" + page); err != nil {
			t.Errorf("a tested page is missing: %v", err)
		}
	}
}

// shellBlocks returns the blocks of commands of a page by heading, in order.
func shellBlocks(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	must(t, err)
	blocks, heading, script, inside := map[string][]string{}, "", "", ""
	for line := range strings.Lines(string(text)) {
		fence, fenced := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fenced && inside != "":
			if inside == "sh" {
				blocks[heading] = append(blocks[heading], script)
			}
			inside, script = "", ""
		case fenced:
			inside = fence
		case inside != "":
			script += line
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return blocks
}

// host imitates a machine with the installed package. It has its own
// configuration, keys, database and cardmint.service. Documented addresses such
// as 127.0.0.1:8080 are replaced by free ports.
type host struct {
	*testing.T
	page          string
	dir           string
	address       string            // of the API
	substitutions map[string]string // of documented paths and addresses
	token         string            // of the account shop
	env           []string          // of commands, in addition to the configuration
	control       string

	blocks map[string][]string
	next   map[string]int

	mu      sync.Mutex                     // held by systemctl
	units   map[string]func() *rig.Process // start functions
	stops   map[string]func()              // stop functions; SIGTERM by default
	running map[string]*rig.Process
	logs    map[string][]*rig.Process
}

func newHost(t *testing.T, page string) *host {
	t.Helper()
	h := &host{T: t, page: page, dir: t.TempDir(), blocks: shellBlocks(t, "operate/"+page), next: map[string]int{},
		units: map[string]func() *rig.Process{},
		stops: map[string]func(){}, running: map[string]*rig.Process{}, logs: map[string][]*rig.Process{}}
	h.address = h.freeAddress()
	metrics := h.freeAddress()
	h.substitutions = map[string]string{"127.0.0.1:8080": h.address, "127.0.0.1:9464": metrics}
	for _, name := range []string{"bin", "etc/cardmint", "var/lib/cardmint", "var/backups"} {
		must(t, os.MkdirAll(filepath.Join(h.dir, name), 0o700))
		h.substitutions["/"+name] = filepath.Join(h.dir, name)
	}
	delete(h.substitutions, "/bin")
	must(t, os.Symlink(newProgram(t, "").path, filepath.Join(h.dir, "bin", programName)))
	web := httptest.NewServer(http.HandlerFunc(h.serveControl))
	t.Cleanup(web.Close)
	h.control = web.URL
	for _, name := range []string{"systemctl", "journalctl"} {
		h.write("/bin/"+name, "#!/bin/sh\nexec curl -sS --fail-with-body --data-binary \"$*\" "+h.control+"/"+name+"\n",
			0o755)
	}
	h.configure()
	h.units["cardmint"] = h.startService
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, unit := range slices.Sorted(maps.Keys(h.logs)) {
			lines := strings.Split(regexp.MustCompile(`(?m)^.* msg=request .*\n`).ReplaceAllString(h.log(unit), ""), "\n")
			t.Logf("%s logged:\n%s", unit, strings.Join(lines[max(0, len(lines)-300):], "\n"))
		}
	})
	return h
}

// usedPorts contains the ports of all hosts. A port that is free may be
// returned twice.
var usedPorts sync.Map

// freeAddress returns an address that is free, and that no other host uses.
func (h *host) freeAddress() string {
	h.Helper()
	for {
		port := rig.FreePort(h)
		if _, given := usedPorts.LoadOrStore(port, true); !given {
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
}

// configure writes the configuration file of the package, with settings for a
// service with simulated money.
func (h *host) configure() {
	h.Helper()
	var text strings.Builder
	page, err := os.ReadFile("../../docs/flags.md")
	must(h, err)
	for _, row := range regexp.MustCompile(
		"(?m)^\\| `--[^`]+` \\| `(CARDMINT_[A-Z_]+)` \\|([^|]*)\\|").FindAllStringSubmatch(string(page), -1) {
		value := strings.Trim(strings.TrimSpace(row[2]), "`")
		fmt.Fprintf(&text, "#%s=%s\n", row[1],
			map[string]string{"on": "true", "off": "false"}[value]+strings.TrimSuffix(strings.TrimSuffix(value, "off"), "on"))
	}
	h.write("/etc/cardmint/cardmint.env", text.String(), 0o600)
	h.setVariable("CARDMINT_DATABASE_URL", "sqlite:"+filepath.Join(h.dir, "var/lib/cardmint/cardmint.db"))
	h.setVariable("CARDMINT_KEYS", filepath.Join(h.dir, "var/lib/cardmint/cardmint.keys"))
	h.setVariable("CARDMINT_LISTEN", h.address)
	h.setVariable("CARDMINT_METRICS_LISTEN", h.substitutions["127.0.0.1:9464"])
	h.setVariable("CARDMINT_SIMULATED", "true")
	h.setVariable("CARDMINT_RATE", "monero=150")
}

// setVariable sets a variable in the configuration file. If the value is empty,
// it comments the variable out.
func (h *host) setVariable(name, value string) {
	h.Helper()
	path := filepath.Join(h.dir, "etc/cardmint/cardmint.env")
	text, err := os.ReadFile(path)
	must(h, err)
	line := regexp.MustCompile(`(?m)^#?` + name + `=.*\n`)
	if !line.Match(text) {
		h.Fatalf("the configuration has no variable %s", name)
	}
	to := fmt.Sprintf("%s=%q\n", name, value)
	if value == "" {
		to = "#" + name + "=\n"
	}
	must(h, os.WriteFile(path, line.ReplaceAllLiteral(text, []byte(to)), 0o600))
}

// write writes a file with a documented path.
func (h *host) write(path, text string, mode os.FileMode) {
	h.Helper()
	path = filepath.Join(h.dir, path)
	must(h, os.WriteFile(path, []byte(text), mode))
}

// prelude returns the functions that install.md defines for the operator, and
// replacements for commands that a test's host lacks.
func (h *host) prelude() string {
	block := strings.Join(shellBlocks(h.T, "operate/install.md")["The package"], "\n")
	defined := regexp.MustCompile(`(?m)^(?:cm|configure)\(\) .*$`).FindAllString(block, -1)
	if len(defined) != 2 {
		h.Fatal("install.md does not define cm and configure")
	}
	text := `install() { local a=(); while [ $# -gt 0 ]; do case $1 in -o|-g) shift 2 ;; *) a+=("$1"); shift ;; esac; done; command install "${a[@]}"; }` + "\n"
	text += "runuser() { while [ \"$1\" != -- ]; do shift; done; shift; \"$@\"; }\n" + strings.Join(defined, "\n") + "\n"
	for _, name := range slices.Sorted(maps.Keys(stubbed)) {
		text += name + "() { :; }\n"
	}
	return text
}

// shell runs a script and returns its output and its exit code. After
// waitLimit, it kills the script with all its children.
func (h *host) shell(script string) (out string, code int) {
	h.Helper()
	script = h.prelude() + script
	for _, documented := range slices.SortedFunc(maps.Keys(h.substitutions), func(a, b string) int { return len(b) - len(a) }) {
		script = strings.ReplaceAll(script, documented, h.substitutions[documented])
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), append(h.env, "PATH="+filepath.Join(h.dir, "bin")+":"+os.Getenv("PATH"))...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.syncMemory()
	defer h.syncMemory()
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	late := time.AfterFunc(waitLimit, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	_ = cmd.Wait()
	if !late.Stop() {
		h.Fatalf("%s: not finished after %s:\n%s\noutput:\n%s", h.page, waitLimit, script, text.String())
	}
	return text.String(), cmd.ProcessState.ExitCode()
}

// syncMemory orders memory accesses of the test and of serveControl for the
// race detector. A script calls serveControl in another process, which the
// detector can't see.
func (h *host) syncMemory() {
	h.mu.Lock()
	defer h.mu.Unlock()
}

// script returns the next block of commands below a heading. changes are pairs
// of old and new text; each old text must occur in the block.
func (h *host) script(heading string, changes ...string) string {
	h.Helper()
	blocks, i := h.blocks[heading], h.next[heading]
	if i >= len(blocks) {
		h.Fatalf("%s: only %d blocks of commands below %q", h.page, len(blocks), heading)
	}
	h.next[heading]++
	script := blocks[i]
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(script, changes[i]) {
			h.Fatalf("%s: %q is not in\n%s", h.page, changes[i], script)
		}
		script = strings.ReplaceAll(script, changes[i], changes[i+1])
	}
	return script
}

// runFrom runs the n-th block of commands below a heading of another page.
func (h *host) runFrom(page, heading string, n int, changes ...string) string {
	h.Helper()
	script := strings.NewReplacer(changes...).Replace(shellBlocks(h.T, "operate/"+page)[heading][n])
	out, code := h.shell(script)
	if code != 0 {
		h.Fatalf("%s, %s: exit code %d\n%s\n%s", page, heading, code, script, out)
	}
	return out
}

// run runs the next block of commands below a heading, which must succeed, and
// returns its output.
func (h *host) run(heading string, changes ...string) string {
	h.Helper()
	return h.runExit(0, heading, changes...)
}

// runExit is like run, for commands that exit with code want.
func (h *host) runExit(want int, heading string, changes ...string) string {
	h.Helper()
	script := h.script(heading, changes...)
	out, code := h.shell(script)
	if code != want {
		h.Fatalf("%s, %s: exit code %d\n%s\n%s", h.page, heading, code, script, out)
	}
	return out
}

// runUntil repeats the next block of commands below a heading, until it
// succeeds and its output contains want.
func (h *host) runUntil(want, heading string, changes ...string) string {
	h.Helper()
	script, last := h.script(heading, changes...), ""
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		out, code := h.shell(script)
		if last = out; code == 0 && strings.Contains(out, want) {
			return out
		}
	}
	h.Fatalf("%s, %s: never printed %q; last output:\n%s", h.page, heading, want, last)
	return ""
}

// allRan fails the test if it skipped commands of the page.
func (h *host) allRan() {
	h.Helper()
	for heading, blocks := range h.blocks {
		for _, block := range blocks[h.next[heading]:] {
			h.Errorf("%s: commands below %q did not run:\n%s", h.page, heading, block)
		}
	}
}

// serveControl implements systemctl and journalctl. The body of a request
// contains their arguments.
func (h *host) serveControl(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	words := strings.Fields(string(body))
	if r.URL.Path == "/journalctl" {
		if !slices.Contains(words, "-u") { // such as --vacuum-size
			return
		}
		text := h.log(strings.TrimSuffix(words[slices.Index(words, "-u")+1], ".service"))
		if slices.Contains(words, "--priority") {
			text = strings.Join(regexp.MustCompile(`(?m)^.*level=(WARN|ERROR).*\n`).FindAllString(text, -1), "")
		}
		_, _ = io.WriteString(w, text)
		return
	}
	for _, unit := range words[1:] { // none for daemon-reload
		if strings.HasPrefix(unit, "-") {
			continue
		}
		if err := h.systemctl(words[0], strings.TrimSuffix(unit, ".service")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
}

func (h *host) systemctl(verb, unit string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	start := h.units[unit]
	if start == nil {
		return fmt.Errorf("there is no unit %s", unit)
	}
	running := h.running[unit]
	switch verb {
	case "status", "is-active":
		if running == nil {
			return fmt.Errorf("%s does not run", unit)
		}
		return nil
	case "reload":
		return nil
	case "disable":
		verb = "stop"
	case "start", "restart", "stop", "enable":
	default:
		return fmt.Errorf("systemctl %s: not known here", verb)
	}
	if running != nil && verb != "start" && verb != "enable" {
		if stop := h.stops[unit]; stop != nil {
			stop()
		}
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // like systemd; ignores an ended process
			_ = syscall.Kill(running.PID(), s)
		}
		running.Wait(h.T, 30*time.Second)
		delete(h.running, unit)
		running = nil
	}
	if running == nil && verb != "stop" {
		if p := start(); p != nil {
			h.running[unit], h.logs[unit] = p, append(h.logs[unit], p)
		}
	}
	return nil
}

// log returns the output of all processes of a unit.
func (h *host) log(unit string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := ""
	for _, p := range h.logs[unit] {
		text += p.Output()
	}
	return text
}

// startService starts cardmint with the command of its unit, and waits until
// the process listens or has ended.
func (h *host) startService() *rig.Process {
	cmd := exec.Command("sh", "-ac", ". etc/cardmint/cardmint.env; cd var/lib/cardmint; exec cardmint serve")
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), append(h.env, "PATH="+filepath.Join(h.dir, "bin")+":"+os.Getenv("PATH"))...)
	p := rig.Start(h.T, cmd)
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline) &&
		syscall.Kill(p.PID(), 0) == nil; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", h.address); err == nil {
			_ = c.Close()
			break
		}
	}
	return p
}
