package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth is how deep a body may be nested.
const maxDepth = 32

var (
	errNotUUID  = errors.New("must be a UUID")
	errRepeated = errors.New("repeated key")
)

// strictJSON returns what is wrong with a JSON text (RFC 8259), or "". Unlike encoding/json it refuses invalid UTF-8, and keys that appear twice:
// programs disagree which of them counts.
func strictJSON(text []byte) string {
	if len(bytes.TrimSpace(text)) == 0 {
		return "The body is empty. Send a JSON object."
	}
	if !utf8.Valid(text) {
		return "The body is not valid UTF-8."
	}
	if bytes.HasPrefix(text, []byte("\uFEFF")) {
		return "The body begins with a byte order mark. Leave it out."
	}
	if !json.Valid(text) {
		var syntax *json.SyntaxError
		if err := json.Unmarshal(text, new(json.RawMessage)); errors.As(err, &syntax) {
			return fmt.Sprintf("The body is not valid JSON: there is a mistake at byte %d.", syntax.Offset)
		}
		return "The body is not valid JSON."
	}
	tokens := json.NewDecoder(bytes.NewReader(text))
	tokens.UseNumber()
	repeated := ""
	if err := walk(tokens, 0, &repeated); errors.Is(err, errRepeated) {
		return fmt.Sprintf("The key %q appears more than once. Send every key once.", repeated)
	} else if err != nil {
		return fmt.Sprintf("The body is nested more than %d levels deep.", maxDepth)
	}
	return ""
}

// walk reads one value of a text that is known to be valid.
func walk(tokens *json.Decoder, depth int, repeated *string) error {
	if depth > maxDepth {
		return errors.New("too deep")
	}
	token, err := tokens.Token()
	if err != nil {
		return err
	}
	delimiter, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	keys := map[string]bool{}
	for tokens.More() {
		if delimiter == '{' {
			token, err := tokens.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			if keys[name] {
				*repeated = name
				return errRepeated
			}
			keys[name] = true
		}
		if err := walk(tokens, depth+1, repeated); err != nil {
			return err
		}
	}
	_, err = tokens.Token()
	return err
}
