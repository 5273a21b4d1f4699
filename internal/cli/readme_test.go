package cli

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

func readme(t *testing.T) string { return page(t, "README.md") }

// page returns a page of the documentation.
func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// table returns the rows of a page whose first column has the prefix.
func table(t *testing.T, text, prefix string) []string {
	t.Helper()
	var rows []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| "+prefix) {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	return rows
}

func model(t *testing.T) *kong.Node {
	t.Helper()
	parser, err := kong.New(newCommands(), coinVars())
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Node
}

// eachCommand calls f with every command that can be run.
func eachCommand(n *kong.Node, f func(*kong.Node)) {
	for _, child := range n.Children {
		if child.Leaf() {
			f(child)
		}
		eachCommand(child, f)
	}
}

// furtherReading are the links that docs/flags.md adds to the help of flags.
var furtherReading = map[string]string{
	"metrics-listen":  "[Metrics](metrics.md)",
	"rate-max-move":   "[Rates](operate/rates.md)",
	"max-open-usd":    "[Details](#the-limit-of-open-cards)",
	"reconcile-every": "[The books](operate/reconcile.md)",
	"retain-events":   "[Growth](operate/growth.md#what-is-deleted-and-when)",
	"retain-expired":  "[Growth](operate/growth.md#what-is-deleted-and-when)",
	"limit-token":     "[Limits](operate/overload.md#limits)",
	"suppliers":       "[Suppliers](suppliers.md)",
	"otlp-endpoint":   "[Traces](operate/traces.md)",
}

// The page has the words of 'serve --help', so that they can't disagree.
func TestREADME_Flags_AreThoseOfServe(t *testing.T) {
	literal := regexp.MustCompile(`https?://[^\s;)]+[^\s.,;)]|--[a-z-]+`)
	var rows strings.Builder
	eachCommand(model(t), func(n *kong.Node) {
		if n.Name != "serve" || n.Parent.Type != kong.ApplicationNode { // the supplier has one too
			return
		}
		for _, group := range n.AllFlags(true) {
			for _, f := range group {
				if len(f.Envs) == 0 { // help, and how this process prints
					continue
				}
				value, text := "", strings.Replace(f.Help, " ("+f.Default+")", "", 1)
				if f.HasDefault {
					value = "`" + f.Default + "` "
				}
				if f.IsBool() {
					value = map[bool]string{true: "on", false: "off"}[f.Default == "true"]
					text = strings.Replace(text, " ("+value+")", "", 1)
					value += " "
				}
				text = literal.ReplaceAllString(text, "`$0`")
				for _, env := range f.Envs[1:] {
					text += " Also set by `" + env + "`."
				}
				if link := furtherReading[f.Name]; link != "" {
					text += " " + link + "."
				}
				fmt.Fprintf(&rows, "| `--%s` | `%s` | %s| %s |\n", f.Name, f.Envs[0], value, text)
			}
		}
	})
	const head = "|---|---|---|---|\n"
	text := page(t, "docs/flags.md")
	before, rest, _ := strings.Cut(text, head)
	_, after, found := strings.Cut(rest, "\n\n")
	if want := before + head + rows.String() + "\n" + after; !found || want != text {
		if *update {
			if err := os.WriteFile("../../docs/flags.md", []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("docs/flags.md differs from the help; to write it: go test ./internal/cli -run Flags -update\n%s",
			cmp.Diff(want, text))
	}
}

var update = flag.Bool("update", false, "write docs/flags.md")

func TestREADME_Length_IsBounded(t *testing.T) {
	if n := len(strings.Fields(readme(t))); n > 900 {
		t.Errorf("%d words", n)
	}
}

// The picture shows commands that the page names.
func TestREADME_Picture_ShowsItsCommands(t *testing.T) {
	commands := regexp.MustCompile(`class="command">([^<]+)<`).FindAllStringSubmatch(page(t, "docs/terminal.svg"), -1)
	for _, command := range commands {
		if !strings.Contains(readme(t), "\n"+command[1]) {
			t.Errorf("the README does not name %s", command[1])
		}
	}
	if len(commands) != 3 {
		t.Errorf("%d commands", len(commands))
	}
}

func TestHelp_CommandsHaveExamples_FlagsHaveText(t *testing.T) {
	eachCommand(model(t), func(n *kong.Node) {
		if n.Help == "" || !strings.Contains(n.Detail, "Example") ||
			!strings.Contains(n.Detail, "cardmint "+strings.TrimPrefix(n.Path(), "cli ")) &&
				!strings.Contains(n.Detail, "cardmint "+n.FullPath()[strings.Index(n.FullPath(), " ")+1:]) {
			t.Errorf("%s: help %q, detail %q", n.FullPath(), n.Help, n.Detail)
		}
		for _, f := range n.Flags {
			if f.Help == "" {
				t.Errorf("%s --%s has no help", n.FullPath(), f.Name)
			}
		}
	})
}
