package cli

import (
	"fmt"
	"io"
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

// helpFor replaces the command help by the flag --help, and adds it to a group
// of commands without one of them.
func helpFor(root *kong.Node, args []string) []string {
	if len(args) > 0 && args[0] == "help" &&
		!slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }) {
		return append(slices.Clone(args[1:]), "--help")
	}
	node := root
	for _, name := range args {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
		if i < 0 {
			return args
		}
		node = node.Children[i]
	}
	if len(node.Children) > 0 && node.DefaultCmd == nil {
		return append(slices.Clone(args), "--help")
	}
	return args
}

// helpWidth is the greatest width of help texts.
const helpWidth = 80

// printHelp prints the overview, or the help of a command without the global
// flags that it ignores.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	selected := ctx.Selected()
	if selected == nil {
		_, err := io.WriteString(ctx.Stdout, overview(ctx.Model.Node))
		return err
	}
	shownFlags(selected)
	var usage strings.Builder
	writeRows(&usage, 0, [][2]string{{"", "Usage: cardmint " + selected.Summary()}})
	if _, err := io.WriteString(ctx.Stdout, strings.TrimLeft(usage.String(), " ")); err != nil {
		return err
	}
	options.NoAppSummary, options.FlagsLast = true, len(selected.Children) > 0
	return kong.DefaultHelpPrinter(options, ctx)
}

// overview returns the help of all commands, by task. Commands for operators
// are listed in groups.
func overview(root *kong.Node) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\nUsage: cardmint COMMAND [ARGUMENTS] [FLAGS]\n", root.Help)
	const left = len("card create")
	for _, group := range groups {
		var rows [][2]string
		for _, leaf := range root.Leaves(true) {
			switch closest := leaf.ClosestGroup(); {
			case closest == nil || closest.Key != group.Key:
			case group.Key != operate || leaf.Parent == root:
				rows = append(rows, [2]string{leaf.Path(), leaf.Help})
			case len(rows) > 0 && rows[len(rows)-1][0] == leaf.Parent.Path():
				rows[len(rows)-1][1] += ", " + leaf.Name
			default:
				rows = append(rows, [2]string{leaf.Parent.Path(), strings.TrimSuffix(leaf.Parent.Help, ".") + ": " + leaf.Name})
			}
		}
		fmt.Fprintf(&text, "\n%s\n", group.Title)
		writeRows(&text, left, rows)
	}
	text.WriteString(`
Start with: cardmint dev
The flags of a command: cardmint COMMAND --help
Every flag can also be set by the environment variable that its help names.
`)
	return text.String()
}

// writeRows writes two columns. The left one has a fixed width, and the right
// one is wrapped.
func writeRows(w *strings.Builder, left int, rows [][2]string) {
	indent := strings.Repeat(" ", 2+left)
	for _, row := range rows {
		line := fmt.Sprintf("  %-*s ", left, row[0])
		for word := range strings.FieldsSeq(row[1]) {
			if len(line)+1+len(word) > helpWidth {
				fmt.Fprintln(w, line)
				line = indent + " "
			}
			line += " " + word
		}
		fmt.Fprintln(w, line)
	}
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
	case "card", "account", "token", "transfers", "rate", "keys", "stock", "wallet", "supplier": // groups
		return flag != "help"
	case "card create", "card pay", "card watch", "listen", "trigger", "supplier ledger", "completion", "__complete", "help", "version":
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
