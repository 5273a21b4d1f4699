package rpc_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain/rpc"
)

// reply has a field of each type that responses use.
type reply struct {
	Text   string          `json:"text"`
	Truth  bool            `json:"truth"`
	Number int64           `json:"number"`
	Large  uint64          `json:"large"`
	Small  uint32          `json:"small"`
	Inner  inner           `json:"inner"`
	List   []inner         `json:"list,omitempty"`
	Raw    json.RawMessage `json:"raw,omitempty"`
	Failed *inner          `json:"failed,omitempty"`
}

type inner struct {
	N int64 `json:"n"`
}

func TestDecode(t *testing.T) {
	const whole = `{"text":"a\u0062c","truth":true,"number":-7,"large":18446744073709551615,"small":4294967295,"inner":{"n":1},` +
		`"list":[{"n":2},{"n":3,"more":[{}]}],"raw":[1, {}],"failed":null,"N":5,"more":{"n":1e400}}`
	var got reply
	if err := rpc.Decode([]byte(whole), &got); err != nil {
		t.Fatal(err)
	}
	want := reply{"abc", true, -7, 1<<64 - 1, 1<<32 - 1, inner{1}, []inner{{2}, {3}}, json.RawMessage("[1, {}]"), nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct{ old, new, says string }{
		{`"text":"a\u0062c",`, ``, "text is missing"},
		{`"text"`, `"Text"`, "text is missing"},
		{`"truth":true`, `"truth":null`, "truth is null"},
		{`"truth":true`, `"truth":1`, "truth is 1, not a value of type bool"},
		{`-7`, `"-7"`, `number is "-7", not`},
		{`-7`, `-7.0`, "number is -7.0"},
		{`-7`, `1e3`, "number is 1e3"},
		{`-7`, `9223372036854775808`, "number is 9223372036854775808"},
		{`18446744073709551615`, `18446744073709551616`, "large is 1844"},
		{`18446744073709551615`, `-1`, "large is -1"},
		{`4294967295`, `4294967296`, "small is 4294967296"},
		{`"inner":{"n":1}`, `"inner":null`, "inner is null"},
		{`"inner":{"n":1}`, `"inner":[]`, "inner is no object"},
		{`"inner":{"n":1}`, `"inner":{}`, "inner.n is missing"},
		{`{"n":2}`, `{"n":2,"n":2}`, "list[0].n is there twice"},
		{`{"n":2}`, `null`, "list[0] is null"},
		{`{"n":3,`, `{"m":3,`, "list[1].n is missing"},
		{`"failed":null`, `"failed":{}`, "failed.n is missing"},
		{`"failed":null`, `"failed":{"n":"` + strings.Repeat("8", 100) + `"}`,
			`failed.n is "` + strings.Repeat("8", 39) + "..., not"},
		{`"raw":[1, {}]`, `"raw":null`, "raw is null"},
		{whole, `null`, "the answer is null"},
		{whole, `[]`, "the answer is no object"},
		{whole, ``, "EOF"},
		{whole, whole[:len(whole)-1], "EOF"},
		{whole, whole + "{}", "something follows"},
		{whole, whole + "x", "something follows"},
		{`"failed":null`, `"failed":nil`, "invalid character"},
	} {
		err := rpc.Decode([]byte(strings.Replace(whole, tt.old, tt.new, 1)), new(reply))
		if !errors.Is(err, card.ErrWrongAnswer) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s instead of %s: error %v, want %q", tt.new, tt.old, err, tt.says)
		}
	}
}

// Every accepted text decodes as with encoding/json.
func FuzzDecode(f *testing.F) {
	f.Add(`{"text":"\\","truth":false,"number":0,"large":0,"small":0,"inner":{"n":-1},"list":[],"raw":"x"}`)
	f.Add(`{"text":"","truth":true,"number":1,"large":2,"small":3,"inner":{"n":4},"list":[{"n":5}],"failed":{"n":6}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var got, want reply
		if rpc.Decode([]byte(text), &got) != nil || !json.Valid([]byte(text)) {
			return
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &keys); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			return // encoding/json ignores the case of keys
		}
		for _, name := range []string{"text", "truth", "number", "large", "small", "inner"} {
			if value, there := keys[name]; !there || string(value) == "null" {
				t.Errorf("%s is missing or null in %s", name, text)
			}
		}
	})
}
