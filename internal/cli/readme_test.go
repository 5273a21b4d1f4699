package cli

import (
	"fmt"
	"os"
	"regexp"
	"slices"
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

func TestREADME_Flags_AreThoseOfServe(t *testing.T) {
	var want []string
	eachCommand(model(t), func(n *kong.Node) {
		if n.Name != "serve" || n.Parent.Type != kong.ApplicationNode { // the supplier has one too
			return
		}
		for _, group := range n.AllFlags(true) {
			for _, f := range group {
				if len(f.Envs) == 0 { // help, and how this process prints
					continue
				}
				value := ""
				if f.HasDefault {
					value = "`" + f.Default + "`"
				}
				if f.IsBool() {
					value = map[bool]string{true: "on", false: "off"}[f.Default == "true"]
				}
				want = append(want, fmt.Sprintf("| `--%s` | `%s` | %s |", f.Name, f.Envs[0], value))
			}
		}
	})
	var got []string
	for _, row := range table(t, page(t, "docs/flags.md"), "`--") {
		got = append(got, row[:strings.LastIndex(strings.TrimSuffix(row, "|"), "|")+1])
	}
	slices.Sort(got)
	slices.Sort(want)
	for i, row := range got {
		got[i] = strings.ReplaceAll(row, "|  |", "| |")
	}
	for i, row := range want {
		want[i] = strings.ReplaceAll(row, "|  |", "| |")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/flags.md differs from the flags (-flags +page):\n%s", diff)
	}
}

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
