package server

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestStrictJSON_MaxDepth(t *testing.T) {
	nested := func(n int, inner string) string { return strings.Repeat("[", n) + inner + strings.Repeat("]", n) }
	for name, x := range map[string]struct {
		text string
		ok   bool
	}{
		"a value at the limit":      {nested(maxDepth, "1"), true},
		"a value beyond":            {nested(maxDepth+1, "1"), false},
		"an empty array at it":      {nested(maxDepth+1, ""), true},
		"an empty array beyond":     {nested(maxDepth+2, ""), false},
		"wide is not deep":          {"[" + strings.Repeat("[],", 1000) + "[]]", true},
		"brackets in a string":      {`"` + strings.Repeat("[", 1000) + `"`, true},
		"objects beyond":            {strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1), false},
		"the same key in different": {`[{"a":1},{"a":1},{"b":{"a":1}}]`, true},
	} {
		if _, fault := strictJSON([]byte(x.text)); (fault == "") != x.ok {
			t.Errorf("%s: %q", name, fault)
		}
	}
}

// An accepted text must have one meaning for all parsers. The oracle does not
// look for repeated keys: a text has as many members as colons outside of
// strings; if the decoded maps have fewer, a key was repeated.
func FuzzStrictJSON_AcceptsUnambiguousText(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `1`, `"a"`, ``, ` `, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":{"b":1,"b":1}}`,
		`[{"a":1},{"a":1}]`, `{"a":":","b":"\":"}`,
		`{"a":1}{}`, `{"a":1} x`, "\ufeff{}", "{\"a\":\"\xff\"}", `{"\ud800":1,"\ud801":2}`, `{"a":1,"A":2}`, `{"":1,"":2}`,
		`["\ud83d\uDE00","\\ud800","\ud800","\ude00\ud83d","\ufffd�"]`, `1e400`, `-0`, `{"a":[[[[1]]]]}`,
		strings.Repeat("[", 33) + strings.Repeat("]", 33), strings.Repeat("[", 34) + strings.Repeat("]", 34),
		`"` + "\x00" + `"`, `{"a" : 1 , "b" : 2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := json.Valid(text) && utf8.Valid(text) && !bytes.HasPrefix(text, []byte("\xef\xbb\xbf"))
		var value any
		if want {
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.UseNumber()
			if err := decoder.Decode(&value); err != nil {
				t.Fatal(err)
			}
			members, depth := measure(value, 0)
			want = members == colons(text) && depth <= maxDepth && replaced(value) <= replacements(text)
		}
		got, fault := strictJSON(text)
		if (fault == "") != want {
			t.Fatalf("%q: %q, want it accepted: %t", text, fault, want)
		}
		if want && !reflect.DeepEqual(got, value) {
			t.Errorf("%q is read as %v", text, got)
		}
		if len(fault) > len(text)*6+200 || !utf8.ValidString(fault) {
			t.Errorf("%q: error %q", text, fault)
		}
	})
}

func measure(value any, at int) (members, depth int) {
	depth = at
	inner := func(v any) {
		m, d := measure(v, at+1)
		members, depth = members+m, max(depth, d)
	}
	switch v := value.(type) {
	case map[string]any:
		members = len(v)
		for _, x := range v {
			inner(x)
		}
	case []any:
		for _, x := range v {
			inner(x)
		}
	}
	return members, depth
}

func colons(text []byte) (n int) {
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case !quoted && c == ':':
			n++
		}
	}
	return n
}

// replaced counts the replacement characters in a value. There are more than in
// its text if half of a surrogate pair was replaced.
func replaced(value any) (n int) {
	switch v := value.(type) {
	case string:
		n = strings.Count(v, "\ufffd")
	case map[string]any:
		for key, x := range v {
			n += replaced(key) + replaced(x)
		}
	case []any:
		for _, x := range v {
			n += replaced(x)
		}
	}
	return n
}

var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// replacements counts the replacement characters in a JSON text.
func replacements(text []byte) int {
	n := bytes.Count(text, []byte("\ufffd"))
	for _, escape := range escapes.FindAll(text, -1) {
		if strings.EqualFold(string(escape), `\ufffd`) {
			n++
		}
	}
	return n
}

// Quotes around a key change nothing. Accepted keys can be stored and are
// distinct.
func FuzzIdempotencyKey_QuotedEqualsBare(f *testing.F) {
	for _, seed := range []string{"", "k", `"`, `""`, `"""`, `"k"`, `"k`, `k"`, `a"b`, strings.Repeat("k", 255),
		strings.Repeat("k", 256), "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		bare, err := idempotencyKey(&header)
		if err == nil && (bare == "" || len(bare) > 255 || !strings.Contains(header, bare)) {
			t.Errorf("%q is read as %q", header, bare)
		}
		quotes := len(header) >= 2 && header[0] == '"' && header[len(header)-1] == '"'
		if quotes {
			return // quoting a quoted key makes a different key
		}
		quoted := `"` + header + `"`
		same, err2 := idempotencyKey(&quoted)
		if same != bare || (err == nil) != (err2 == nil) {
			t.Errorf("%q is %q (%v), in quotes %q (%v)", header, bare, err, same, err2)
		}
	})
}
