package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: ${enum}."`
}

func (completionCommand) Help() string {
	return `Prints a script for the shell, which asks this program what can come next: commands, flags and their values.

Examples:
  # in ~/.bashrc
  source <(cardmint completion bash)
  # once, where compinit is loaded
  cardmint completion zsh > "${fpath[1]}/_cardmint"
  # once
  cardmint completion fish > ~/.config/fish/completions/cardmint.fish`
}

// Run prints a script.
func (c completionCommand) Run(g *globals) error {
	_, err := fmt.Fprint(g.stdout,
		map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell])
	return err
}

// Without candidates, the shell completes file names.
const (
	bashCompletion = `_cardmint() {
	local IFS=$'\n'
	COMPREPLY=($("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
	COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
}
complete -o default -F _cardmint cardmint
`
	zshCompletion = `#compdef cardmint
_cardmint() {
	local line
	local -a found
	for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	if (( $#found )); then
		_describe cardmint found
	else
		_files
	fi
}
if [[ $funcstack[1] == _cardmint ]]; then
	_cardmint
else
	compdef _cardmint cardmint
fi
`
	fishCompletion = `function __cardmint_complete
	set -l words (commandline -opc)
	set -e words[1]
	set -l current (commandline -ct)
	set -l found (cardmint __complete $words "$current" 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path "$current"
	end
end
complete -c cardmint -f -a '(__cardmint_complete)'
`
)

// completeCommand is run by the scripts of completionCommand.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"What is typed after the program's name; the last is to be completed."`
}

func (completeCommand) Help() string { return "Example:\n  cardmint __complete card li" }

// Run prints one candidate per line, with a description after a tab.
func (c completeCommand) Run(g *globals, parsed *kong.Context) error {
	for _, line := range candidates(parsed.Model.Node, c.Words) {
		if _, err := fmt.Fprintln(g.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns the completions of the last word.
func candidates(root *kong.Node, words []string) []string {
	p, last := position{node: root}, ""
	for i, word := range words {
		switch {
		case word == "=": // bash splits it off as a word
		case i == len(words)-1:
			last = word
		default:
			p.advance(word)
		}
	}
	return p.candidates(last)
}

// position is the place in a command line to complete.
type position struct {
	node  *kong.Node
	args  int        // that were passed
	value *kong.Flag // that waits for its value
}

// advance moves past a word.
func (p *position) advance(word string) {
	switch {
	case p.value != nil:
		p.value = nil
	case strings.HasPrefix(word, "--"):
		name, _, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if f := p.flag(name); f != nil && !f.IsBool() && !given {
			p.value = f
		}
	case strings.HasPrefix(word, "-"):
	default:
		for _, child := range p.node.Children {
			if child.Name == word || slices.Contains(child.Aliases, word) {
				p.node, p.args = child, 0
				return
			}
		}
		p.args++
	}
}

// flags returns the flags that are valid at the position.
func (p *position) flags() (all []*kong.Flag) {
	node := p.node
	if node.DefaultCmd != nil {
		node = node.DefaultCmd
	}
	for _, group := range shownFlags(node) {
		all = append(all, group...)
	}
	return all
}

func (p *position) flag(name string) *kong.Flag {
	all := p.flags()
	if i := slices.IndexFunc(all, func(f *kong.Flag) bool { return f.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// candidates returns the completions of a word, in the order of the help.
func (p *position) candidates(word string) (lines []string) {
	add := func(text, meaning string) {
		if strings.HasPrefix(text, word) {
			lines = append(lines, text+"\t"+firstSentence(meaning))
		}
	}
	name, _, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
	switch {
	case p.value != nil:
		for _, v := range values(p.value.Value) {
			add(v, "")
		}
	case strings.HasPrefix(word, "--") && given:
		if f := p.flag(name); f != nil {
			for _, v := range values(f.Value) {
				add("--"+name+"="+v, "")
			}
		}
	case strings.HasPrefix(word, "-"):
		for _, f := range p.flags() {
			add("--"+f.Name, f.Help)
		}
	default:
		for _, child := range p.node.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
		if p.args < len(p.node.Positional) {
			for _, v := range values(p.node.Positional[p.args]) {
				add(v, "")
			}
		}
	}
	return lines
}

// values returns the values of an enumeration.
func values(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return slices.DeleteFunc(v.EnumSlice(), func(s string) bool { return s == "" })
}

func firstSentence(s string) string {
	first, _, _ := strings.Cut(s, ". ")
	first, _, _ = strings.Cut(first, "\n")
	return strings.TrimSuffix(first, ".")
}
