package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cardmint/cardmint/internal/card"
)

// maxDepth is how deep a body may be nested.
const maxDepth = 32

const numeric = "0123456789+-.eE" // what numbers are written with

var errNotUUID = errors.New("must be a UUID")

// strictJSON parses a JSON text (RFC 8259) into maps, slices, strings,
// json.Numbers, booleans and nil. If the text is not valid, it returns what is
// wrong with it. Unlike encoding/json it refuses invalid UTF-8 and duplicate
// keys: programs disagree about which counts.
func strictJSON(text []byte) (value any, fault string) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, "The body is empty. Send a JSON object."
	}
	if !utf8.Valid(text) {
		return nil, "The body is not valid UTF-8."
	}
	if bytes.HasPrefix(text, []byte("\uFEFF")) {
		return nil, "The body begins with a byte order mark. Leave it out."
	}
	if !json.Valid(text) {
		var syntax *json.SyntaxError
		if err := json.Unmarshal(text, new(json.RawMessage)); errors.As(err, &syntax) {
			return nil, fmt.Sprintf("The body is not valid JSON: there is a mistake at byte %d.", syntax.Offset)
		}
		return nil, "The body is not valid JSON."
	}
	if halfPair(text) {
		return nil, `The body has half of a surrogate pair, such as "\ud800". Send whole characters.`
	}
	var repeated repeatedKey
	value, err := (&reader{text: text}).value(0)
	if errors.As(err, &repeated) {
		return nil, fmt.Sprintf("The key %.100q appears more than once. Send every key once.", card.Redact(string(repeated)))
	}
	if err != nil {
		return nil, fmt.Sprintf("The body is nested more than %d levels deep.", maxDepth)
	}
	return value, ""
}

// halfPair reports whether a text that is known to be valid has an escaped
// surrogate without the other half of its pair, which is no character.
// encoding/json would replace it without a word.
func halfPair(text []byte) bool {
	const rest = len(`\ud800`) - 1
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		unit := escaped(text[i:])
		if unit < 0 {
			i++ // what follows is escaped itself
			continue
		}
		i += rest
		if !utf16.IsSurrogate(unit) {
			continue
		}
		if utf16.DecodeRune(unit, escaped(text[i+1:])) == utf8.RuneError {
			return true
		}
		i += 1 + rest
	}
	return false
}

// escaped returns the code that a valid text begins with in the form \uXXXX, or
// -1 if it begins otherwise.
func escaped(text []byte) rune {
	if !bytes.HasPrefix(text, []byte(`\u`)) {
		return -1
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return rune(unit)
}

type repeatedKey string

func (k repeatedKey) Error() string { return "repeated key" }

var errTooDeep = errors.New("too deep")

// reader reads a text that is known to be valid, once. A json.Decoder allocates
// several times as much.
type reader struct {
	text []byte
	at   int
}

// next returns the next byte that is not white space, and goes on to it. The
// text must have one.
func (r *reader) next() byte {
	for {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
}

func (r *reader) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch r.next() {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		return r.string(), nil
	case 't':
		r.at += len("true")
		return true, nil
	case 'f':
		r.at += len("false")
		return false, nil
	case 'n':
		r.at += len("null")
		return nil, nil
	}
	start := r.at
	for r.at < len(r.text) && strings.IndexByte(numeric, r.text[r.at]) >= 0 {
		r.at++
	}
	return json.Number(r.text[start:r.at]), nil
}

func (r *reader) object(depth int) (any, error) {
	object := map[string]any{}
	for r.at++; r.next() != '}'; {
		if r.text[r.at] == ',' {
			r.at++
			r.next()
		}
		name := r.string()
		if _, known := object[name]; known {
			return nil, repeatedKey(name)
		}
		r.next()
		r.at++ // the colon
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		object[name] = value
	}
	r.at++
	return object, nil
}

func (r *reader) array(depth int) (any, error) {
	array := []any{}
	for r.at++; r.next() != ']'; {
		if r.text[r.at] == ',' {
			r.at++
		}
		element, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		array = append(array, element)
	}
	r.at++
	return array, nil
}

// string reads a string, whose first quote is next.
func (r *reader) string() string {
	start, escaped := r.at, false
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	r.at++
	quoted := r.text[start:r.at]
	if !escaped {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // is valid
	return s
}
