package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/cardmint/cardmint/internal/app"
)

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, for example: card resolve. Without it, all commands are listed."`
}

func (helpCommand) Help() string {
	return "The same as --help after the command.\n\nExamples:\n  cardmint help\n  cardmint help card resolve"
}

// helpFor replaces the command help by the flag --help.
func helpFor(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help" && !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }):
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// printHelp prints the help of a command without the global flags that it
// ignores.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if selected := ctx.Selected(); selected != nil {
		shownFlags(selected)
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// shownFlags hides the global flags that a command ignores, and returns the
// rest. Ignored flags are accepted, so that scripts can pass the same flags to
// every command.
func shownFlags(node *kong.Node) [][]*kong.Flag {
	root := node
	for root.Parent != nil {
		root = root.Parent
	}
	for _, f := range root.Flags {
		f.Hidden = node != root && ignored(node.Path(), f.Name)
	}
	return node.AllFlags(true)
}

// ignored reports whether the command at a path ignores a global flag.
func ignored(path, flag string) bool {
	var used []string
	switch path {
	case "listen", "trigger", "supplier ledger", "completion", "__complete", "help", "version":
	case "supplier serve":
		used = []string{"log-format", "log-level"}
	case "keys create", "keys add":
		used = []string{"keys"}
	case "backup", "restore":
		used = []string{"database-url"}
	case "migrate", "rate show", "wallet check":
		used = []string{"database-url", "log-format", "log-level"}
	case "serve", "token create", "stock import", "stock list", "stock hold", "stock release", "supplier check",
		"supplier cancel":
		used = []string{"database-url", "keys", "mode", "log-format", "log-level"}
	default: // commands for operators, which work in either mode
		used = []string{"database-url", "keys", "log-format", "log-level"}
	}
	return flag == "version" || flag != "help" && flag != "color" && !slices.Contains(used, flag)
}

// versionFlag prints the version and exits.
type versionFlag bool

// BeforeReset implements kong's hook that runs before missing arguments are
// reported.
func (versionFlag) BeforeReset(parser *kong.Kong) error {
	_, err := fmt.Fprintln(parser.Stdout, "cardmint", app.Version())
	parser.Exit(0)
	return err
}
