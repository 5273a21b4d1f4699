package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
)

// decode stores the JSON value text in what result points to, field by field. What encoding/json takes for zero is an error here: every
// field of result's type must be there, once, under exactly its name, and neither be null nor have another type. Fields of the answer that
// the type lacks are skipped.
//
// A field may be missing if its tag has omitempty: monero leaves out empty lists, and some numbers that are 0. Only a pointer may be null.
//
// The error names the field, as in "in[3].amount is missing", and is card.ErrWrongAnswer.
func decode(text []byte, result any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // or a skipped or misplaced one could be too large
	err := decodeValue(d, reflect.ValueOf(result).Elem(), "")
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the answer")
		}
	}
	return wrongAnswer(err)
}

// wrongAnswer makes an error match card.ErrWrongAnswer, too; nil stays nil.
func wrongAnswer(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", card.ErrWrongAnswer, err)
}

// decodeValue decodes the next value. path names it in errors.
func decodeValue(d *json.Decoder, v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.Struct:
		return decodeObject(d, v, path)
	case reflect.Slice:
		if v.Type() != reflect.TypeFor[json.RawMessage]() {
			return decodeList(d, v, path)
		}
	}
	var text json.RawMessage
	if err := d.Decode(&text); err != nil {
		return err
	}
	switch isNull := string(text) == "null"; {
	case isNull && v.Kind() == reflect.Pointer:
		return nil
	case isNull:
		return fmt.Errorf("%s is null", named(path))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decodeValue(json.NewDecoder(bytes.NewReader(text)), v.Elem(), path)
	}
	if json.Unmarshal(text, v.Addr().Interface()) != nil {
		return fmt.Errorf("%s is %s, not a value of type %s", named(path), excerpt(text), v.Type())
	}
	return nil
}

func decodeObject(d *json.Decoder, v reflect.Value, path string) error {
	if err := decodeOpening(d, '{', path); err != nil {
		return err
	}
	fields := make(map[string]int, v.NumField())
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = i
	}
	seen := make(map[string]bool, len(fields))
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string) // Token returns nothing else here
		i, known := fields[name]
		if !known {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return err
			}
			continue
		}
		if seen[name] {
			return fmt.Errorf("%s is there twice", named(within(path, name)))
		}
		seen[name] = true
		if err := decodeValue(d, v.Field(i), within(path, name)); err != nil {
			return err
		}
	}
	for i := range v.NumField() { // in the order in which they are declared
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if !seen[name] && option != "omitempty" {
			return fmt.Errorf("%s is missing", named(within(path, name)))
		}
	}
	_, err := d.Token() // the end of the object
	return err
}

func decodeList(d *json.Decoder, v reflect.Value, path string) error {
	if err := decodeOpening(d, '[', path); err != nil {
		return err
	}
	list := reflect.MakeSlice(v.Type(), 0, 0)
	for i := 0; d.More(); i++ {
		list = reflect.Append(list, reflect.Zero(v.Type().Elem()))
		if err := decodeValue(d, list.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	v.Set(list)
	_, err := d.Token() // the end of the list
	return err
}

// decodeOpening reads the beginning of an object or a list.
func decodeOpening(d *json.Decoder, want json.Delim, path string) error {
	token, err := d.Token()
	switch {
	case err != nil:
		return err
	case token == nil:
		return fmt.Errorf("%s is null", named(path))
	case token == want:
		return nil
	}
	return fmt.Errorf("%s is no %s", named(path), map[json.Delim]string{'{': "object", '[': "list"}[want])
}

func within(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func named(path string) string {
	if path == "" {
		return "the answer"
	}
	return path
}

// excerpt shortens what an error quotes.
func excerpt(text []byte) string {
	const longest = 40
	if len(text) > longest {
		return string(text[:longest]) + "..."
	}
	return string(text)
}
