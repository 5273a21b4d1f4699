package client

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
)

// difference describes how two values differ; it is empty if they are equal.
// Values with an Equal method, such as decimals and times, are compared by it.
// It replaces go-cmp, because users of the module would get the dependencies of
// its tests.
func difference(want, got any) string {
	var b strings.Builder
	differ(&b, "", reflect.ValueOf(want), reflect.ValueOf(got))
	return b.String()
}

func differ(b *strings.Builder, path string, want, got reflect.Value) {
	if !want.IsValid() || !got.IsValid() || want.Type() != got.Type() {
		if want.IsValid() || got.IsValid() {
			fmt.Fprintf(b, "%s: %#v, want %#v\n", path, got, want)
		}
		return
	}
	if m, ok := want.Type().MethodByName("Equal"); ok && m.Type.NumIn() == 2 && m.Type.In(1) == want.Type() {
		if !m.Func.Call([]reflect.Value{want, got})[0].Bool() {
			fmt.Fprintf(b, "%s: %v, want %v\n", path, got, want)
		}
		return
	}
	switch want.Kind() {
	case reflect.Pointer, reflect.Interface:
		differ(b, path, want.Elem(), got.Elem())
	case reflect.Struct:
		for i := range want.NumField() {
			differ(b, path+"."+want.Type().Field(i).Name, want.Field(i), got.Field(i))
		}
	case reflect.Slice, reflect.Map:
		if want.IsNil() != got.IsNil() || want.Len() != got.Len() {
			fmt.Fprintf(b, "%s: %#v, want %#v\n", path, got, want)
			return
		}
		if want.Kind() == reflect.Map {
			for _, key := range want.MapKeys() {
				differ(b, fmt.Sprintf("%s[%v]", path, key), want.MapIndex(key), got.MapIndex(key))
			}
			return
		}
		for i := range want.Len() {
			differ(b, fmt.Sprintf("%s[%d]", path, i), want.Index(i), got.Index(i))
		}
	default:
		if !want.Equal(got) {
			fmt.Fprintf(b, "%s: %#v, want %#v\n", path, got, want)
		}
	}
}

func TestDifference_CanTell(t *testing.T) {
	at := time.Date(2026, 11, 20, 15, 6, 0, 0, time.UTC)
	for name, pair := range map[string][2]any{
		"texts":    {"a", "b"},
		"types":    {1, int64(1)},
		"nil":      {(*Card)(nil), &Card{}},
		"nothing":  {nil, &Card{}},
		"fields":   {&Card{Status: "a"}, &Card{Status: "b"}},
		"depths":   {[]Currency{{Rate: ptr(decimal.New(1, 0))}}, []Currency{{Rate: ptr(decimal.New(2, 0))}}},
		"pointers": {Currency{}, Currency{RateAt: &at}},
		"times":    {at, at.Add(1)},
		"lengths":  {[]int{1}, []int{1, 2}},
		"none":     {[]int{}, []int(nil)},
		"keys":     {map[string][]string{"a": {"1"}}, map[string][]string{"b": {"1"}}},
		"arrays":   {testID, hookID},
	} {
		if difference(pair[0], pair[1]) == "" || difference(pair[1], pair[0]) == "" || difference(pair[0], pair[0]) != "" {
			t.Errorf("%s: %s", name, difference(pair[0], pair[1]))
		}
	}
	if d := difference([]any{decimal.RequireFromString("1.50"), at},
		[]any{decimal.RequireFromString("1.5"), at.In(time.FixedZone("", 3600))}); d != "" {
		t.Error(d)
	}
}

// ptr returns a pointer to a copy, like new(x) of Go 1.26.
func ptr[T any](x T) *T { return &x }
