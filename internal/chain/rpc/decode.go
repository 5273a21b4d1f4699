package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/cardmint/cardmint/internal/card"
)

// Decode stores the JSON value text in the value that result points to, field
// by field. Unlike encoding/json, it never leaves a field at zero: every field
// of result's type must be present, once, under exactly its name, with the
// right type and not null. Fields that the type lacks are skipped.
//
// A field with omitempty is optional: monero omits empty lists, and some
// numbers that are 0. Only a pointer may be null.
//
// The error names the field, as in "in[3].amount is missing", and is
// card.ErrWrongAnswer.
func Decode(text []byte, result any) error {
	d := decoder{Decoder: json.NewDecoder(bytes.NewReader(text))}
	d.UseNumber() // or a skipped number could be out of range
	err := d.value(reflect.ValueOf(result).Elem())
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the answer")
		}
	}
	return WrongAnswer(err)
}

// WrongAnswer makes an error match card.ErrWrongAnswer; nil stays nil.
func WrongAnswer(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", card.ErrWrongAnswer, err)
}

// fieldError is a fault of a field.
type fieldError struct {
	path string // of the field, as in "in[3].amount"; "" for the whole answer
	what string
}

func (e *fieldError) Error() string {
	if e.path == "" {
		return "the answer " + e.what
	}
	return strings.TrimPrefix(e.path, ".") + " " + e.what
}

// under prepends the place of a field to an error about it. Paths are built
// only for errors, as a response may have 100,000 entries.
func under(where string, err error) error {
	if e, ok := errors.AsType[*fieldError](err); ok {
		e.path = where + e.path
	}
	return err
}

// decoder reads one response.
type decoder struct {
	*json.Decoder
	text json.RawMessage // buffer for the last value
}

// value decodes the next value.
func (d *decoder) value(v reflect.Value) error {
	isText := v.Type() == reflect.TypeFor[json.RawMessage]()
	switch {
	case v.Kind() == reflect.Struct:
		return d.object(v)
	case v.Kind() == reflect.Slice && !isText:
		return d.list(v)
	}
	if err := d.Decode(&d.text); err != nil {
		return err
	}
	switch isNull := string(d.text) == "null"; {
	case isNull && v.Kind() == reflect.Pointer:
		return nil
	case isNull:
		return &fieldError{what: "is null"}
	case isText:
		v.SetBytes(bytes.Clone(d.text))
		return nil
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		inner := decoder{Decoder: json.NewDecoder(bytes.NewReader(bytes.Clone(d.text)))}
		return inner.value(v.Elem())
	}
	if !setScalar(v, d.text) {
		return &fieldError{what: fmt.Sprintf("is %s, not a value of type %s", Excerpt(string(d.text)), v.Type())}
	}
	return nil
}

// setScalar stores a boolean, a number or a string; false if v has another
// type, or cannot hold it.
func setScalar(v reflect.Value, text []byte) bool {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(string(text) == "true")
		return string(text) == "true" || string(text) == "false"
	case reflect.Int64:
		n, err := strconv.ParseInt(string(text), 10, 64)
		v.SetInt(n)
		return err == nil
	case reflect.Uint64, reflect.Uint32:
		n, err := strconv.ParseUint(string(text), 10, v.Type().Bits())
		v.SetUint(n)
		return err == nil
	case reflect.String:
		if text[0] == '"' && bytes.IndexByte(text, '\\') < 0 {
			v.SetString(string(text[1 : len(text)-1]))
			return true
		}
	}
	return json.Unmarshal(text, v.Addr().Interface()) == nil
}

// field is a field of a result type.
type field struct {
	name     string
	optional bool
}

var fieldsOf sync.Map // the fields by reflect.Type

func fields(t reflect.Type) []field {
	known, _ := fieldsOf.Load(t)
	if all, ok := known.([]field); ok {
		return all
	}
	all := make([]field, t.NumField())
	for i := range all {
		name, option, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		all[i] = field{name, option == "omitempty"}
	}
	fieldsOf.Store(t, all)
	return all
}

func (d *decoder) object(v reflect.Value) error {
	if err := d.opening('{', "is no object"); err != nil {
		return err
	}
	wanted := fields(v.Type())
	var seen uint64 // a bit for each field
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string) // Token returns nothing else here
		i := 0
		for i < len(wanted) && name != wanted[i].name {
			i++
		}
		switch {
		case i == len(wanted):
			err = d.Decode(&d.text) // skipped
		case seen&(1<<i) != 0:
			err = under("."+wanted[i].name, &fieldError{what: "is there twice"})
		default:
			seen |= 1 << i
			if err = d.value(v.Field(i)); err != nil {
				err = under("."+wanted[i].name, err)
			}
		}
		if err != nil {
			return err
		}
	}
	for i, f := range wanted {
		if seen&(1<<i) == 0 && !f.optional {
			return under("."+f.name, &fieldError{what: "is missing"})
		}
	}
	_, err := d.Token() // the end of the object
	return err
}

func (d *decoder) list(v reflect.Value) error {
	if err := d.opening('[', "is no list"); err != nil {
		return err
	}
	v.SetLen(0)
	for i := 0; d.More(); i++ {
		if i == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(i + 1)
		v.Index(i).SetZero()
		if err := d.value(v.Index(i)); err != nil {
			return under(fmt.Sprintf("[%d]", i), err)
		}
	}
	_, err := d.Token() // the end of the list
	return err
}

// opening reads the beginning of an object or a list.
func (d *decoder) opening(want json.Delim, otherwise string) error {
	token, err := d.Token()
	switch {
	case err != nil:
		return err
	case token == nil:
		return &fieldError{what: "is null"}
	case token != want:
		return &fieldError{what: otherwise}
	}
	return nil
}

// Excerpt shortens a text for an error.
func Excerpt(text string) string {
	const longest = 40
	if len(text) > longest {
		return text[:longest] + "..."
	}
	return text
}
