package docs

import (
	"os"
	"strings"
	"testing"
)

func TestByReader_WhoCallsTheServiceComesFirst(t *testing.T) {
	got := byReader(`# Changelog

Whom it is for.

## Unreleased

- **Operators:** A flag. Of two
  lines.
- **API:** A field.
- **Clients:** A method.
- **API:** A code.
- Something else.

## 0.1.0

- **Operators:** A start.
`)
	want := `# Changelog

Whom it is for.


## Unreleased

### For all who call the service

- A field.
- A code.

### For users of the clients, and developers of receivers

- A method.

### For operators

- A flag. Of two
  lines.
- Something else.

## 0.1.0

### For operators

- A start.
`
	if got != want {
		t.Errorf("%s", got)
	}
}

func TestChangelog_EachEntrySaysWhomItIsFor(t *testing.T) {
	n := 0
	for line := range strings.Lines(changelog(t)) {
		entry, is := strings.CutPrefix(line, "- ")
		if reader, text := readerOf(entry); is && text == entry {
			t.Errorf("begin with %q, or with that of another reader: %.60s", readers[reader].mark, line)
		}
		if is {
			n++
		}
	}
	if n < 50 {
		t.Errorf("only %d entries were found", n)
	}
}

// changelog returns the file's text.
func changelog(t *testing.T) string {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Integrators find what is for them before what is for operators, and nothing
// is lost on the way.
func TestChangelog_IsServedByReader(t *testing.T) {
	page := pages(open(t))["/docs/changelog"]
	last := 0
	for _, r := range readers {
		at := strings.Index(page, ">"+r.title+"</h3>")
		if at <= last {
			t.Errorf("%q is at %d, after %d", r.title, at, last)
		}
		last = at
	}
	if got, want := strings.Count(page, "<li>")-strings.Count(page[:strings.Index(page, "<h1")], "<li>"),
		strings.Count(changelog(t), "\n- "); got != want {
		t.Errorf("%d of %d entries are served", got, want)
	}
}
