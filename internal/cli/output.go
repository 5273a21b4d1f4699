package cli

import (
	"encoding/json"
	"io"
	"os"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// output is embedded by commands that print data.
type output struct {
	JSON bool `name:"json" help:"Print JSON on one line, for programs; its fields are named above."`
}

// write prints data as JSON with --json. Otherwise it aligns the tab-separated
// columns that printTable writes.
func (o output) write(g *globals, data any, printTable func(w io.Writer)) error {
	if o.JSON {
		return writeJSON(g, data)
	}
	table := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
	printTable(table)
	return table.Flush()
}

// notes returns the writer for remarks, which are not part of the JSON.
func (o output) notes(g *globals) io.Writer {
	if o.JSON {
		return g.stderr
	}
	return g.stdout
}

// writeJSON prints data as JSON on one line.
func writeJSON(g *globals, data any) error {
	var line strings.Builder
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil {
		return err
	}
	_, err := io.WriteString(g.stdout, line.String())
	return err
}

// instant is a time that is formatted as in the API, and null if zero.
type instant struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t instant) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(string(card.AppendTime(nil, t.Time)))
}

// newInstant returns the zero instant if t is nil.
func newInstant(t *time.Time) instant {
	if t == nil {
		return instant{}
	}
	return instant{*t}
}

// optional is a string that is null in JSON if empty.
type optional string

// MarshalJSON implements json.Marshaler.
func (s optional) MarshalJSON() ([]byte, error) {
	if s == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(s))
}

// jsonHelp returns the part of a help text that lists the JSON fields of data.
func jsonHelp(data any) string {
	t, what := reflect.TypeOf(data), "an object"
	if t.Kind() == reflect.Slice {
		t, what = t.Elem(), "an array of objects"
	}
	return "\n\nWith --json: " + what + " with " + strings.Join(jsonFields(t), ", ") +
		". Money is in decimal strings, times are RFC 3339 in UTC with milliseconds, and unknown values are null or omitted."
}

// jsonFields returns the JSON names of the fields of a type, including nested
// ones.
func jsonFields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			names = append(names, jsonFields(embedded)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.PkgPath() == t.PkgPath() && inner != reflect.TypeFor[instant]() {
			name += " (" + strings.Join(jsonFields(inner), ", ") + ")"
		}
		names = append(names, name)
	}
	return names
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func formatTime(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
