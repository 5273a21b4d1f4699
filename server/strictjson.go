package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep a body may be nested.
const maxDepth = 32

var errNotUUID = errors.New("must be a UUID")

// strictJSON parses a JSON text (RFC 8259) into maps, slices, strings, json.Numbers, booleans and nil. If the text is not valid, it
// returns what is wrong with it. Unlike encoding/json it refuses invalid UTF-8 and duplicate keys: programs disagree about which counts.
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
	tokens := json.NewDecoder(bytes.NewReader(text))
	tokens.UseNumber()
	var repeated repeatedKey
	value, err := read(tokens, 0)
	if errors.As(err, &repeated) {
		return nil, fmt.Sprintf("The key %.100q appears more than once. Send every key once.", string(repeated))
	}
	if err != nil {
		return nil, fmt.Sprintf("The body is nested more than %d levels deep.", maxDepth)
	}
	return value, ""
}

// halfPair reports whether a text that is known to be valid has an escaped surrogate without the other half of its pair, which is no
// character. encoding/json would replace it without a word.
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

// escaped returns the code that a valid text begins with in the form \uXXXX, or -1 if it begins otherwise.
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

// read reads one value from a text that is known to be valid.
func read(tokens *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("too deep")
	}
	token, err := tokens.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for tokens.More() {
			token, err := tokens.Token()
			if err != nil {
				return nil, err
			}
			name, _ := token.(string)
			if _, known := object[name]; known {
				return nil, repeatedKey(name)
			}
			if object[name], err = read(tokens, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = tokens.Token()
		return object, err
	case json.Delim('['):
		array := []any{}
		for tokens.More() {
			element, err := read(tokens, depth+1)
			if err != nil {
				return nil, err
			}
			array = append(array, element)
		}
		_, err = tokens.Token()
		return array, err
	}
	return token, nil
}
