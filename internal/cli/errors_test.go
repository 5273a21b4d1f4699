package cli

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// internals are texts of Go and of libraries that mean nothing to users.
var internals = regexp.MustCompile(`strconv|netip\.|time: |bit int|\((string|int|int64|bool|kong)\)|%!|uuid: |UUID length|` +
	`client: |[A-Z][a-z]+[A-Z][A-Za-z]+: |\*[a-z]+\.[A-Z]|decode|unmarshal|can't convert`)

// Every flag is given a value that it can't have, on the command line and in the
// environment.
func TestErrors_WrongValues_AreExplained(t *testing.T) {
	eachNode(model(t), nil, func(n *kong.Node, args []string) {
		if !n.Leaf() || n.Hidden {
			return
		}
		for _, group := range n.AllFlags(false) {
			for _, f := range group {
				if f.Name == "help" || f.Name == "version" {
					continue
				}
				line := append(args[:len(args):len(args)], "--"+f.Name+"=no\tsense")
				if k := f.Target.Kind().String(); k == "string" || k == "slice" && f.Target.Type().Elem().Kind() == reflect.String ||
					k == "map" {
					continue // any text is parsed; the command checks it
				}
				if _, stderr, code := run(t, line...); code != 2 || !strings.Contains(stderr, "--"+f.Name) ||
					!strings.Contains(stderr, "\nhint: ") || internals.MatchString(stderr) {
					t.Errorf("%v: exit code %d, %s", line, code, stderr)
				}
			}
		}
	})
}

func TestErrors_MissingArguments_AreExplained(t *testing.T) {
	eachNode(model(t), nil, func(n *kong.Node, args []string) {
		required := false
		for _, p := range n.Positional {
			required = required || p.Required
		}
		if !n.Leaf() || !required {
			return
		}
		if _, stderr, code := run(t, args...); code != 2 || !strings.Contains(stderr, "\nhint: ") ||
			internals.MatchString(stderr) {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	})
}

func TestErrors_WrongFieldsOfExample_AreExplained(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, set := range []string{"seq=x", "seq=-1", "seq=99999999999999999999", "timestamp=today", "card_uuid=1",
		"status=eaten", "payment_state=eaten", "color=red"} {
		_, stderr, code := run(t, "trigger", "card.generated", "--to", "http://127.0.0.1:1", "--set", set)
		if code != 1 || !strings.Contains(stderr, "--set") || !strings.Contains(stderr, "\nhint: ") ||
			internals.MatchString(stderr) {
			t.Errorf("%s: exit code %d, %s", set, code, stderr)
		}
	}
}
