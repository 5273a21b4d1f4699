package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Lie is an error in a response of a JSON-RPC server.
type Lie struct {
	Name   string
	Method string // the method of the response
	Field  string // the wrong field; "" if the whole response is wrong
	tell   telling
}

type telling func(answer []byte) (lied []byte, ok bool)

// Tell returns the response with the lie. It returns false if the response
// lacks the field.
func (l Lie) Tell(answer []byte) (lied []byte, ok bool) { return l.tell(answer) }

// LieThat returns a lie that replaces the value of a field in a method's
// result, such as "in.0.amount".
func LieThat(method, field string, is any) Lie {
	return Lie{Name: fmt.Sprintf("%s: %s is %v", method, field, is), Method: method, Field: lastOf(field),
		tell: editing(field, func(parent map[string]any, name string) {
			parent[name] = is
		})}
}

// twiceMark makes a key unique until it is written.
const twiceMark = "\u2016"

// LiesAbout returns the syntactic lies about a field of a method's result: it
// is missing, null, duplicated, or of another kind. honest is a value of the
// field.
func LiesAbout(method, field string, honest any) []Lie {
	kinds := map[string]any{"null": nil, "a list": []any{}, "an object": map[string]any{}}
	switch honest.(type) {
	case bool:
		maps.Copy(kinds, map[string]any{"a string": "false", "a number": 0})
	case string:
		maps.Copy(kinds,
			map[string]any{"a number": 7, "empty": "", "nonsense": "\x00nonsense", "endless": strings.Repeat("8", 1000)})
	case []any:
		maps.Copy(kinds, map[string]any{"a string": "", "full of nothing": []any{nil}})
		delete(kinds, "a list")
	case map[string]any:
		maps.Copy(kinds, map[string]any{"a string": ""})
	default:
		maps.Copy(kinds, map[string]any{"a string": "7", "a truth": true, "a fraction": 7.5, "negative": -1,
			"huge": json.Number("9223372036854775807"), "too large for 64 bits": json.Number("18446744073709551616"),
			"immense": json.Number("1e400")})
	}
	lies := []Lie{
		{Name: "missing", tell: editing(field, func(parent map[string]any, name string) { delete(parent, name) })},
		{Name: "there twice",
			tell: editing(field, func(parent map[string]any, name string) { parent[name+twiceMark] = parent[name] })},
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		lies = append(lies, Lie{Name: name, tell: LieThat(method, field, kinds[name]).tell})
	}
	for i := range lies {
		lies[i].Name, lies[i].Method, lies[i].Field = method+": "+field+" is "+lies[i].Name, method, lastOf(field)
	}
	return lies
}

// LiesOf returns the lies that replace a method's whole response.
func LiesOf(method string) []Lie {
	whole := func(text string) telling { return func([]byte) ([]byte, bool) { return []byte(text), true } }
	lies := []Lie{
		{Name: "empty", tell: whole("")},
		{Name: "a web page", tell: whole("<!DOCTYPE html><html></html>")},
		{Name: "null", tell: whole("null")},
		{Name: "a list", tell: whole("[]")},
		{Name: "neither result nor error", tell: whole(`{"id":"0","jsonrpc":"2.0"}`)},
		{Name: "an error without code", tell: whole(`{"id":"0","jsonrpc":"2.0","error":{"message":"no"}}`)},
		{Name: "an unknown error", tell: whole(`{"id":"0","jsonrpc":"2.0","error":{"code":-1,"message":"no"}}`)},
		{Name: "cut in half", tell: func(answer []byte) ([]byte, bool) { return answer[:len(answer)/2], true }},
		{Name: "without its end", tell: func(answer []byte) ([]byte, bool) {
			return bytes.TrimRight(bytes.TrimSpace(answer), "}"), true
		}},
		{Name: "followed by another", tell: func(answer []byte) ([]byte, bool) {
			return append(slices.Clone(answer), answer...), true
		}},
		{Name: "that of another request",
			tell: editingWhole(func(answer map[string]any) bool { answer["id"] = "another"; return true })},
		{Name: "without id", tell: editingWhole(func(answer map[string]any) bool { delete(answer, "id"); return true })},
		{Name: "without result",
			tell: editingWhole(func(answer map[string]any) bool { delete(answer, "result"); return true })},
		{Name: "a result that is null",
			tell: editingWhole(func(answer map[string]any) bool { answer["result"] = nil; return true })},
		{Name: "a result that is a list",
			tell: editingWhole(func(answer map[string]any) bool { answer["result"] = []any{answer["result"]}; return true })},
	}
	for i := range lies {
		lies[i].Name, lies[i].Method = "the answer of "+method+" is "+lies[i].Name, method
	}
	return lies
}

func lastOf(field string) string { return field[strings.LastIndex(field, ".")+1:] }

// editing returns a function that edits the object that contains a field of the
// result.
func editing(field string, edit func(parent map[string]any, name string)) telling {
	return editingWhole(func(answer map[string]any) bool {
		steps := strings.Split("result."+field, ".")
		var at any = answer
		for _, step := range steps[:len(steps)-1] {
			switch x := at.(type) {
			case map[string]any:
				at = x[step]
			case []any:
				if i, err := strconv.Atoi(step); err == nil && i < len(x) {
					at = x[i]
				} else {
					at = nil
				}
			}
		}
		name := steps[len(steps)-1]
		parent, ok := at.(map[string]any)
		if !ok || parent[name] == nil {
			return false
		}
		edit(parent, name)
		return true
	})
}

func editingWhole(edit func(answer map[string]any) bool) telling {
	return func(text []byte) ([]byte, bool) {
		numbers := json.NewDecoder(bytes.NewReader(text))
		numbers.UseNumber()
		var answer map[string]any
		if err := numbers.Decode(&answer); err != nil || !edit(answer) {
			return text, false
		}
		edited, err := json.Marshal(answer)
		return bytes.ReplaceAll(edited, []byte(twiceMark), nil), err == nil
	}
}
