package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// rule is an alarm of the shipped file.
type rule struct {
	name, expr                              string
	severity, summary, description, runbook string
}

// rules reads the file, whose syntax promtool checks. Every value except
// expressions is on one line.
func rules(t *testing.T) []rule {
	t.Helper()
	var all []rule
	for _, text := range strings.Split(page(t, "docs/operate/alarms.rules.yaml"), "\n      - alert: ")[1:] {
		find := func(pattern string) string {
			found := regexp.MustCompile(pattern).FindStringSubmatch(text)
			if found == nil {
				return ""
			}
			return found[1]
		}
		all = append(all,
			rule{find(`^(\w+)\n`), find(`(?s)\n        expr: (.*?)\n        \w`),
				find(`\n        labels: {severity: (page|ticket)}\n`),
				find(`\n          summary: (.+)`), find(`\n          description: (.+)`), find(`\n          runbook_url: (.+)`)})
	}
	if len(all) < 20 {
		t.Fatalf("only %d alarms", len(all))
	}
	return all
}

var (
	metricNames = regexp.MustCompile(`\bcardmint_[a-z_]+[a-z]\b`)
	shownNames  = regexp.MustCompile("(?m)^\\| `(cardmint_[a-z_]+)` \\| (\\w+) \\|([^|]*)\\|")
	runbookURL  = regexp.MustCompile(`^https://github\.com/cardmint/cardmint/blob/main/docs/operate/alarms\.md#([a-z]+)$`)
)

// exported returns the labels of every metric in docs/metrics.md, which another
// test compares with the exported metrics.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, row := range shownNames.FindAllStringSubmatch(page(t, "docs/metrics.md"), -1) {
		labels := strings.Fields(strings.ReplaceAll(row[3], "`", ""))
		all[row[1]] = labels
		if row[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[row[1]+suffix] = append(slices.Clone(labels), "le")
			}
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d metrics", len(all))
	}
	return all
}

func TestAlarms_EachRule_HasRunbookSection(t *testing.T) {
	text, known := page(t, "docs/operate/alarms.md"), exported(t)
	sections := map[string]string{}
	for _, s := range strings.Split(text, "\n### ")[1:] {
		title, body, _ := strings.Cut(s, "\n")
		sections[title], _, _ = strings.Cut(body, "\n## ")
	}
	for _, r := range rules(t) {
		if !strings.HasPrefix(r.name, "Cardmint") || r.expr == "" || r.severity == "" || r.summary == "" ||
			r.description == "" {
			t.Errorf("not complete: %+v", r)
		}
		if link := runbookURL.FindStringSubmatch(r.runbook); link == nil || link[1] != strings.ToLower(r.name) {
			t.Errorf("%s leads to %s", r.name, r.runbook)
		}
		for _, part := range []string{"**Means:** ", "**Costs:** ", "```sh\n", "**Fix:** ", "**Over:** "} {
			if !strings.Contains(sections[r.name], part) {
				t.Errorf("the section of %s lacks %q", r.name, part)
			}
		}
		delete(sections, r.name)
		for _, name := range metricNames.FindAllString(r.expr, -1) {
			if _, there := known[name]; !there {
				t.Errorf("%s looks at %s, which is not exported", r.name, name)
			}
		}
	}
	for title := range sections {
		t.Errorf("the section %s belongs to no alarm", title)
	}
}

// shellLines returns the shell commands of a page.
func shellLines(text string) []string {
	var all []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Split(strings.TrimSpace(block[1]), "\n")...)
	}
	for _, inline := range regexp.MustCompile("`(cm [^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, inline[1])
	}
	return all
}

func TestAlarms_Commands_Parse(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: reads every command of the alarms")
	}
	text, known := page(t, "docs/operate/alarms.md"), exported(t)
	lines := shellLines(text)
	if len(lines) < 60 {
		t.Fatalf("only %d commands", len(lines))
	}
	for _, line := range lines {
		words := strings.Fields(line)
		if words[0] != "cm" {
			if !slices.Contains(
				[]string{"apt-get", "install", "promtool", "systemctl", "journalctl", "curl", "df", "du", "grep", "timedatectl",
					"top", "runuser"}, words[0]) {
				t.Errorf("unknown metric or command: %s", line)
			}
			continue
		}
		parser, err := kong.New(newCommands(), coinVars(), kong.Exit(func(int) {}), kong.Writers(os.Stderr, os.Stderr))
		if err != nil {
			t.Fatal(err)
		}
		var args []string
		for _, w := range words[1:] {
			args = append(args, strings.Trim(strings.ReplaceAll(w, "UUID", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"), `"`))
		}
		if slices.Contains(args, "supplier") && slices.Contains(args, "check") { // the configuration names the file
			t.Setenv("CARDMINT_SUPPLIERS", "suppliers.toml")
		}
		if _, err := parser.Parse(args); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, name := range metricNames.FindAllString(text, -1) {
		found := false
		for metric := range known {
			found = found || strings.HasPrefix(metric, name)
		}
		if !found {
			t.Errorf("%s is not exported", name)
		}
	}
	for _, flag := range regexp.MustCompile("`(--[a-z-]+)`").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(page(t, "docs/flags.md"), "| `"+flag[1]+"` |") {
			t.Errorf("%s is no flag of serve", flag[1])
		}
	}
	for _, loop := range regexp.MustCompile(`loop=(?:\\")?(\w+)`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains([]string{"watch", "issue", "send", "books", "keys"}, loop[1]) {
			t.Errorf("there is no loop %s", loop[1])
		}
	}
}

// Every link of the operators' pages leads to a page and a section of it.
func TestDocs_Links_Resolve(t *testing.T) {
	anchor := func(title string) string {
		kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(title), "")
		return strings.ReplaceAll(kept, " ", "-")
	}
	pages := []string{"README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/operate/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			pages = append(pages, strings.TrimPrefix(path, "../../"))
		}
	}
	n := 0
	for _, from := range pages {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(page(t, from), -1) {
			path, section, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			n++
			to := filepath.Join("../..", filepath.Dir(from), path)
			if path == "" {
				to = filepath.Join("../..", from)
			}
			if is, err := os.Stat(to); err == nil && is.IsDir() {
				continue
			}
			content, err := os.ReadFile(to)
			if err != nil {
				t.Errorf("%s: %v", from, err)
				continue
			}
			found := section == ""
			for _, title := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(content), -1) {
				found = found || anchor(title[1]) == section
			}
			if !found && !strings.Contains(string(content), `name="`+section+`"`) {
				t.Errorf("%s leads to %s, where there is no such section", from, link[1])
			}
		}
	}
	if n < 150 {
		t.Errorf("only %d links", n)
	}
}
