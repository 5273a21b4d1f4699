package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources returns the code of the program, by file.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"../*/*.go", "../../server/*.go"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".gen.go") || strings.HasPrefix(path, "../rig/") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(text)
		}
	}
	if len(all) < 150 {
		t.Fatalf("only %d files", len(all))
	}
	return all
}

var (
	auditedAction = regexp.MustCompile(`\.audited\(\w+, "(\w+)"`)
	logCall       = regexp.MustCompile(
		`\.(?:Debug|Info|Warn|Error|LogAttrs)(?:Context)?\((?:\w+(?:\.\w+\(\))?, )?(?:[\w.]+, )?"`)
	code = regexp.MustCompile("`([^`]+)`")
)

func TestLogs_AuditTable_IsComplete(t *testing.T) {
	var want []string
	for _, text := range sources(t) {
		for _, found := range auditedAction.FindAllStringSubmatch(text, -1) {
			want = append(want, found[1])
		}
	}
	var got []string
	_, audit, _ := strings.Cut(page(t, "docs/operate/logs.md"), "\n## Audit\n")
	for _, row := range table(t, audit, "`") {
		got = append(got, code.FindStringSubmatch(row)[1])
	}
	slices.Sort(want)
	want = slices.Compact(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) < 15 {
		t.Errorf("page:\n%s\ncode:\n%s", got, want)
	}
}

func TestLogs_DocumentedMessages_Exist(t *testing.T) {
	var all strings.Builder
	for _, text := range sources(t) {
		all.WriteString(text)
	}
	_, messages, _ := strings.Cut(page(t, "docs/operate/logs.md"), "\n## Cards\n")
	messages, _, _ = strings.Cut(messages, "\n## Audit\n")
	n := 0
	for _, row := range table(t, messages, "`") {
		for _, message := range code.FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			n++
			if !strings.Contains(all.String(), `"`+message[1]+`"`) {
				t.Errorf("no log call has the message %q", message[1])
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d messages", n)
	}
}

// Durations are logged with their unit: a bare number would be ambiguous.
func TestLogs_Durations_HaveUnits(t *testing.T) {
	n := 0
	for path, text := range sources(t) {
		for number, line := range strings.Split(text, "\n") {
			if !logCall.MatchString(line) && !strings.Contains(line, "slog.Int") && !strings.Contains(line, "slog.Float") {
				continue
			}
			n++
			for _, no := range []string{".Seconds()", ".Milliseconds()", ".Microseconds()", ".Minutes()", "_ms\"", "_seconds\"",
				"/ time.Second"} {
				if strings.Contains(line, no) {
					t.Errorf("%s:%d: %s", path, number+1, strings.TrimSpace(line))
				}
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d log calls were found", n)
	}
}
