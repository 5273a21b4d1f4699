package cli

import (
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// operatorPages returns the pages of docs/operate, by their names.
func operatorPages(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob("../../docs/operate/*.md")
	if err != nil || len(found) < 15 {
		t.Fatalf("%d pages, %v", len(found), err)
	}
	pages := map[string]string{}
	for _, path := range found {
		pages[filepath.Base(path)] = page(t, "docs/operate/"+filepath.Base(path))
	}
	return pages
}

// notProcedures are the pages that are not instructions for a failure.
var notProcedures = []string{"README.md", "alarms.md", "backup-pgbackrest.md", "capacity.md", "epochs.md",
	"first-wallet.md", "growth.md", "high-availability.md", "install.md", "keys.md", "logs.md", "overload.md",
	"reconcile.md", "reverse-proxy.md", "security.md", "traces.md"}

func TestRunbook_Pages_AreComplete(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: reads every command of the runbook")
	}
	pages, flags, metrics := operatorPages(t), known(t), slices.Collect(maps.Keys(exported(t)))
	for name, text := range pages {
		if name != "README.md" && !strings.Contains(pages["README.md"], "]("+name) {
			t.Errorf("the index does not lead to %s", name)
		}
		for _, part := range []string{"\n**You see:** ", "\n**Money:** ", "\n1. ", "\n**Over when:** ",
			"\n**Never:**\n\n- "} {
			if !slices.Contains(notProcedures, name) && !strings.Contains(text, part) {
				t.Errorf("%s lacks %q", name, part)
			}
		}
		for _, fence := range regexp.MustCompile("(?m)^ *```(.+)$").FindAllStringSubmatch(text, -1) {
			if !slices.Contains([]string{"sh", "yaml", "toml", "nginx", "sql", "text"}, fence[1]) {
				t.Errorf("%s has a block of %s, which no test runs", name, fence[1])
			}
		}
		if strings.Count(text, "\n```")%2 != 0 {
			t.Errorf("%s has a block that does not end", name)
		}
		// Indented and inline commands are parsed, but not run.
		for _, line := range regexp.MustCompile(
			"(?m)`((?:cm|cardmint) [a-z][^`]+)`|^ {4,}((?:cm|cardmint) .+)$").FindAllStringSubmatch(text, -1) {
			parses(t, name, line[1]+line[2])
		}
		for _, flag := range regexp.MustCompile("`(--[a-z-]+)[ `]").FindAllStringSubmatch(text, -1) {
			if !flags[flag[1]] {
				t.Errorf("%s names the flag %s, which no command has", name, flag[1])
			}
		}
		for _, metric := range metricNames.FindAllString(text, -1) {
			if !slices.ContainsFunc(metrics, func(is string) bool { return strings.HasPrefix(is, metric) }) {
				t.Errorf("%s names %s, which is not exported", name, metric)
			}
		}
	}
}

// parses fails the test unless the command exists. The rest of a line after
// "..." or a capital letter is a placeholder.
func parses(t *testing.T, name, line string) {
	t.Helper()
	parser, err := kong.New(newCommands(), coinVars(), kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, w := range regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`).FindAllString(line, -1)[1:] {
		args = append(args, strings.Trim(strings.ReplaceAll(w, "UUID", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"), `"'`))
	}
	t.Setenv("CARDMINT_SUPPLIERS", "suppliers.toml")
	if _, err := parser.Parse(args); err != nil && !begins(t, args) {
		t.Errorf("%s: %s: %v", name, line, err)
	}
}

// begins reports whether arguments are the name of a command, as in a sentence.
func begins(t *testing.T, args []string) (found bool) {
	t.Helper()
	eachCommand(model(t), func(n *kong.Node) {
		_, path, _ := strings.Cut(n.FullPath(), " ")
		found = found || path == strings.Join(args, " ")
	})
	return found
}

// known returns the flags of all commands, and of other programs that the pages
// name.
func known(t *testing.T) map[string]bool {
	t.Helper()
	flags := map[string]bool{"--read-only": true, "--cap-drop": true, "--restricted-rpc": true, "--rpc-login": true,
		"--enable-feature": true, "--delta": true,
		"--type": true, "--output": true}
	eachCommand(model(t), func(n *kong.Node) {
		for _, group := range n.AllFlags(false) {
			for _, f := range group {
				flags["--"+f.Name] = true
			}
		}
	})
	return flags
}

// A umask that outlives its block makes files unreadable that later commands in
// the same root shell create.
func TestRunbook_Umask_StaysInSubshell(t *testing.T) {
	leaking := regexp.MustCompile(`(?m)^(?:umask|.*[;&] *umask)\b.*$`)
	for name, text := range operatorPages(t) {
		for _, line := range leaking.FindAllString(text, -1) {
			if !strings.HasPrefix(line, "(") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}
