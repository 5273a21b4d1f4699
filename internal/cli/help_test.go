package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// run runs a command and returns what it printed, and its exit code.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	code = Main(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), code
}

// eachNode calls f with the arguments of every command and group.
func eachNode(n *kong.Node, args []string, f func(n *kong.Node, args []string)) {
	f(n, args)
	for _, child := range n.Children {
		eachNode(child, append(args[:len(args):len(args)], child.Name), f)
	}
}

func TestHelp_AnyCommand_FitsInTerminal(t *testing.T) {
	eachNode(model(t), nil, func(_ *kong.Node, args []string) {
		text, stderr, code := run(t, append(args, "--help")...)
		if code != 0 || stderr != "" {
			t.Errorf("%v: exit code %d, %q", args, code, stderr)
		}
		for line := range strings.Lines(text) {
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > helpWidth {
				t.Errorf("%v: %d columns: %s", args, width, line)
			}
		}
	})
}

func TestHelp_Overview_ListsEveryCommand(t *testing.T) {
	text, _, _ := run(t)
	api, others, _ := strings.Cut(text, "\nRun the service:")
	for _, want := range []string{"\n  card create  ", "\n  card pay  ", "\n  card watch  ", "\n  listen  ", "\n  trigger  "} {
		if !strings.Contains(api, want) {
			t.Errorf("not a command that calls the API: %q\n%s", want, text)
		}
	}
	if !strings.Contains(others, ": list, show, resolve, purge\n") {
		t.Errorf("commands for operators about cards are missing:\n%s", text)
	}
	eachCommand(model(t), func(n *kong.Node) {
		if !n.Hidden && !strings.Contains(text, n.Name) {
			t.Errorf("%s is missing", n.Path())
		}
	})
}

func TestHelp_GroupWithoutCommand_IsPrinted(t *testing.T) {
	eachNode(model(t), nil, func(n *kong.Node, args []string) {
		if len(n.Children) == 0 || n.DefaultCmd != nil {
			return
		}
		want, _, _ := run(t, append(args, "--help")...)
		if got, stderr, code := run(t, args...); code != 0 || stderr != "" || got != want {
			t.Errorf("%v: exit code %d, %s%s", args, code, got, stderr)
		}
	})
}

func TestHelp_CardGroup_SeparatesAPIFromDatabase(t *testing.T) {
	text, _, _ := run(t, "card")
	api, operators, found := strings.Cut(text, groups[3].Title)
	if !found || !strings.Contains(api, groups[1].Title) || !strings.Contains(api, "card watch") ||
		!strings.Contains(operators, "card purge") || strings.Contains(text, "--database-url") {
		t.Errorf("%s", text)
	}
}
