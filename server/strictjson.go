package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/cardmint/cardmint/internal/card"
)

// maxDepth is how deeply a body may be nested.
const maxDepth = 32

var errTooDeep = errors.New("nested too deeply")

// strictJSON parses a JSON text (RFC 8259) into maps, slices, strings,
// json.Numbers, booleans and nil. If the text is not valid, it returns the
// reason. Invalid UTF-8 and duplicate keys are not valid: programs disagree on
// their meaning.
func strictJSON(text []byte) (value any, fault string) {
	err := jsonv2.Unmarshal(text, &value, jsonv2.WithUnmarshalers(jsonv2.UnmarshalFromFunc(unmarshalExact)))
	if err == nil {
		return value, ""
	}
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, errTooDeep):
		return nil, fmt.Sprintf("The body is nested more than %d levels deep.", maxDepth)
	case !errors.As(err, &syntax):
		return nil, "The body is not valid JSON."
	case len(bytes.TrimSpace(text)) == 0:
		return nil, "The body is empty. Send a JSON object."
	case errors.Is(err, jsontext.ErrDuplicateName):
		key := card.Redact(syntax.JSONPointer.LastToken())
		return nil, fmt.Sprintf("The key %.100q appears more than once. Send every key once.", key)
	}
	return nil, fmt.Sprintf("The body is not valid JSON: there is a mistake at byte %d: %s.", syntax.ByteOffset,
		card.Redact(syntax.Err.Error()))
}

// unmarshalExact keeps the digits of a number, and limits the depth.
func unmarshalExact(d *jsontext.Decoder, value *any) error {
	if d.StackDepth() > maxDepth {
		return errTooDeep
	}
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	number, err := d.ReadValue()
	*value = json.Number(number)
	return err
}
