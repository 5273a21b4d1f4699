package cli

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// printsNoData are the commands without data in their output.
var printsNoData = []string{
	"dev", "serve", "supplier serve", // run until they are stopped, and have a log
	"completion", "__complete", "help",
	"token revoke", "rate accept", "wallet rescan", "wallet claim",
	"keys create", "keys promote", "keys retire",
}

func TestCLI_CommandsWithData_HaveJSON(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	known := map[string]bool{}
	eachCommand(model(t), func(n *kong.Node) {
		known[n.Path()] = true
		has := slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == "json" })
		if has == slices.Contains(printsNoData, n.Path()) {
			t.Errorf("%s: has --json: %t", n.Path(), has)
		}
		_, fields, documented := strings.Cut(n.Detail, "With --json")
		if has != documented {
			t.Errorf("%s: the help says what --json prints: %t", n.Path(), documented)
		}
		_, fields, _ = strings.Cut(fields, " with ")
		fields, _, _ = strings.Cut(fields, ". ")
		for _, name := range strings.FieldsFunc(fields, func(r rune) bool { return strings.ContainsRune(" ,()", r) }) {
			if n.Path() != "reconcile" && !snake.MatchString(name) {
				t.Errorf("%s: the field %q is not in snake case", n.Path(), name)
			}
		}
	})
	for _, path := range printsNoData {
		if !known[path] {
			t.Errorf("there is no command %s", path)
		}
	}
}

func TestInstant_JSON_IsAsInAPI(t *testing.T) {
	east := time.FixedZone("east", 2*60*60)
	text, err := json.Marshal([]instant{{time.Date(2026, 11, 20, 16, 46, 0, 0, east)}, {}})
	if err != nil || string(text) != `["2026-11-20T14:46:00.000Z",null]` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestHelp_IgnoredFlags_AreHidden(t *testing.T) {
	root := model(t)
	eachCommand(root, func(n *kong.Node) {
		var names []string
		for _, f := range shownFlags(n)[0] {
			names = append(names, f.Name)
		}
		want := map[string]string{
			"listen": "help color", "wallet check": "help database-url log-format log-level color", "version": "help color",
			"supplier serve": "help log-format log-level color",
			"keys create":    "help keys color", "backup": "help database-url color",
			"card list":    "help database-url keys log-format log-level color",
			"serve":        "help database-url keys mode log-format log-level color",
			"token create": "help database-url keys mode log-format log-level color",
		}[n.Path()]
		if got := strings.Join(names, " "); want != "" && got != want {
			t.Errorf("%s shows %s", n.Path(), got)
		}
	})
	if shown := shownFlags(root); len(shown[0]) != len(root.Flags) {
		t.Errorf("only %d of %d flags are shown without a command", len(shown[0]), len(root.Flags))
	}
}

func TestComplete_PartialLine_ListsCandidates(t *testing.T) {
	root := model(t)
	for line, want := range map[string]string{
		"":                          "dev card listen trigger serve migrate backup restore account token transfers reconcile rate keys stock wallet supplier completion help version",
		"car":                       "card",
		"card ":                     "create pay watch list show resolve purge",
		"card li":                   "list",
		"card nosuch ":              "create pay watch list show resolve purge",
		"card list --st":            "--state",
		"card list --state un":      "unpaid underpaid",
		"card list --state=un":      "--state=unpaid --state=underpaid",
		"card list --state = un":    "unpaid underpaid", // as split by bash
		"card list --limit 5 --att": "--attention",
		"card show --all --refu":    "--refund-address",
		"card resolve x ":           "accept refund write-off retry",
		"card resolve --note x y w": "write-off",
		"completion ":               "bash zsh fish",
		"trigger card.g":            "card.generated",
		"transfers --unat":          "--unattributed",
		"listen --database":         "",
		"stock import ":             "",
		"--mode te":                 "test",
	} {
		var got []string
		for _, c := range candidates(root, strings.Split(line, " ")) {
			text, _, _ := strings.Cut(c, "\t")
			got = append(got, text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestColors_Auto_OnlyOnTerminals(t *testing.T) {
	var pipe strings.Builder
	for _, tt := range []struct {
		when string
		want bool
	}{{"auto", false}, {"never", false}, {"always", true}} {
		if got := colors(tt.when, &pipe); got != tt.want {
			t.Errorf("%s: %t", tt.when, got)
		}
	}
	g := &globals{Color: "always"}
	if got := g.paint(&pipe, red, "LOW") + g.paint(&pipe, none, "paid"); got != "\x1b[31mLOW\x1b[0mpaid" {
		t.Errorf("%q", got)
	}
}

func TestWithScheme_ThisMachine_IsHTTP(t *testing.T) {
	for address, want := range map[string]string{
		"":                         "",
		"localhost:3000":           "http://localhost:3000",
		"localhost:3000/hook":      "http://localhost:3000/hook",
		"shop.localhost/hook":      "http://shop.localhost/hook",
		"127.0.0.1:8080":           "http://127.0.0.1:8080",
		"[::1]:8080/hook":          "http://[::1]:8080/hook",
		"hooks.example.com/x":      "https://hooks.example.com/x",
		"localhost.example.com":    "https://localhost.example.com",
		"192.168.0.1":              "https://192.168.0.1",
		"http://hooks.example.com": "http://hooks.example.com",
		"https://localhost:3000":   "https://localhost:3000",
	} {
		if got := withScheme(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}
