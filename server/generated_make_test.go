package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

type operation struct {
	id, method, template string
	*openapi3.Operation
}

// valid generates a request that the contract allows.
func (g *generator) valid(o operation) *generated {
	r := &generated{operation: o, path: o.template, query: url.Values{}, headers: map[string]string{},
		token: g.hooks.token}
	for _, ref := range o.Parameters {
		p := ref.Value
		if !p.Required && g.IntN(2) == 0 {
			continue
		}
		value := g.parameter(p)
		switch p.In {
		case "path":
			r.path = strings.Replace(r.path, "{"+p.Name+"}", value, 1)
		case "query":
			r.query.Set(p.Name, value)
		case "header":
			r.headers[p.Name] = value
		}
		// Clients do not make up cursors, and a number may be ahead of the
		// newest event.
		r.refusable = r.refusable || p.Name == "cursor" || p.Name == "after" || p.Name == "Last-Event-ID"
	}
	if o.RequestBody != nil && (o.RequestBody.Value.Required || g.IntN(4) > 0) {
		r.body = g.value("", o.RequestBody.Value.Content["application/json"].Schema.Value)
		r.write()
	}
	return r
}

// write writes the modified body.
func (r *generated) write() {
	text, err := json.Marshal(r.body)
	if err != nil {
		panic(err)
	}
	r.text, r.headers["Content-Type"] = string(text), "application/json"
}

func (g *generator) parameter(p *openapi3.Parameter) string {
	switch p.Name {
	case "uuid", "card", "webhook_id", "event_id":
		return g.id(p.Name)
	case "wait":
		return "0" // other values make the request wait
	case "after", "Last-Event-ID":
		return fmt.Sprint(g.Int64N(g.seq + 1))
	case "Idempotency-Key":
		return fmt.Sprintf("key-%d", g.IntN(1e9))
	case "cursor", "If-None-Match", "created_after", "created_before", "since":
		return fmt.Sprint(p.Example)
	}
	if p.Schema.Value.Type.Is("string") && p.Example != nil && len(p.Schema.Value.Enum) == 0 && g.IntN(2) == 0 {
		return fmt.Sprint(p.Example)
	}
	return fmt.Sprint(g.value(p.Name, p.Schema.Value))
}

// value generates a value of a schema.
func (g *generator) value(field string, s *openapi3.Schema) any {
	switch {
	case len(s.OneOf) > 0:
		return g.value(field, s.OneOf[g.IntN(len(s.OneOf))].Value)
	case len(s.Enum) > 0:
		return s.Enum[g.IntN(len(s.Enum))]
	case s.Type.Is("object") && s.AdditionalProperties.Schema != nil:
		all := map[string]any{}
		for range g.IntN(5) {
			all[g.words(20)+"k"] = g.value("", s.AdditionalProperties.Schema.Value)
		}
		return all
	case s.Type.Is("object"):
		all := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, name) || g.IntN(2) == 0 {
				all[name] = g.value(name, s.Properties[name].Value)
			}
		}
		return all
	case s.Type.Is("array"):
		all := []any{}
		for range g.IntN(4) {
			all = append(all, g.value(field, s.Items.Value))
		}
		return all
	case s.Type.Is("integer"):
		low, high := 0.0, 1000.0
		if s.Min != nil {
			low = *s.Min
		}
		if s.Max != nil {
			high = *s.Max
		}
		return int64(low) + g.Int64N(int64(high-low)+1)
	case s.Type.Is("number"):
		return float64(int64(*s.Min*100)+g.Int64N(int64((*s.Max-*s.Min)*100)+1)) / 100
	case s.Type.Is("boolean"):
		return g.IntN(2) == 0
	}
	return g.text(field, s)
}

func (g *generator) text(field string, s *openapi3.Schema) string {
	switch field {
	case "usd_amount":
		return fmt.Sprintf("%d.%02d", 50+g.IntN(700), g.IntN(100))
	case "amount":
		return fmt.Sprintf("0.%03d", 1+g.IntN(999))
	case "currency":
		return "monero"
	case "url", "refund_address":
		return map[string]string{"url": g.receiver + fmt.Sprint(g.IntN(1000)), "refund_address": refundTo}[field]
	}
	longest := 30
	if s.MaxLength != nil {
		longest = int(math.Min(float64(*s.MaxLength), 200))
	}
	return g.words(longest)
}

// words returns text in several scripts.
func (g *generator) words(longest int) string {
	letters := []rune("aZ09 _-.äß漢😀\u202e\"\\<>'%&/~\u0301\t")
	text := make([]rune, 1+g.IntN(longest))
	for i := range text {
		text[i] = letters[g.IntN(len(letters))]
	}
	return string(text)
}

// breakIt breaks a request in one way, and returns the statuses that the
// response may have.
func (g *generator) breakIt(r *generated) string {
	for {
		b := breakages[g.IntN(len(breakages))]
		if want := b.do(g, r); want != "" {
			r.broken = b.name
			return want
		}
	}
}

const malformed, invalid = "400", "422"

// breakages break a request, and return the problem code of the response, or ""
// if the request can't be broken that way.
var breakages = []struct {
	name string
	do   func(*generator, *generated) string
}{
	{"a token that is none", func(g *generator, r *generated) string {
		r.token = g.oneOf("", "x", r.token[:len(r.token)-1]+"!", "cm_test_"+strings.Repeat("a", 500))
		if r.token == "" && g.IntN(2) == 0 {
			r.headers["Authorization"] = "Basic eDp5"
		}
		return "401"
	}},
	{"a method that is not there", func(_ *generator, r *generated) string { r.method = "PUT"; return "405" }},
	{"a path that is not there", func(_ *generator, r *generated) string { r.path += "/more/of/it"; return "404" }},
	{"an unknown parameter", func(g *generator, r *generated) string {
		r.query.Set("x"+fmt.Sprint(g.IntN(99)), "1")
		return invalid
	}},
	{"a parameter twice", func(g *generator, r *generated) string {
		for _, name := range slices.Sorted(maps.Keys(r.query)) {
			r.query.Add(name, r.query.Get(name))
			return invalid
		}
		return ""
	}},
	{"a parameter that is none of its type", func(g *generator, r *generated) string {
		return g.query(r, func(s *openapi3.Schema) string {
			if s.Type.Is("integer") {
				return g.oneOf("x", "1.5", "1e3", "", " 1", "0x1", "99999999999999999999", "-99999999999999999999", "NaN")
			}
			if len(s.Enum) > 0 || s.Format != "" {
				return g.oneOf("x", "null", " ", "\x00", "\xff")
			}
			return ""
		})
	}},
	{"a parameter out of its bounds", func(g *generator, r *generated) string {
		return g.query(r, func(s *openapi3.Schema) string {
			switch {
			case s.Max != nil && g.IntN(2) == 0:
				return fmt.Sprint(int64(*s.Max) + 1)
			case s.Min != nil:
				return fmt.Sprint(int64(*s.Min) - 1)
			case s.MaxLength != nil:
				return strings.Repeat("a", int(*s.MaxLength)+1)
			}
			return ""
		})
	}},
	{"an id that is none", func(g *generator, r *generated) string {
		steps := strings.Split(r.path, "/")
		for i, step := range strings.Split(r.template, "/") {
			if strings.HasPrefix(step, "{") {
				steps[i] = g.oneOf("x", "1", "%00", "%ff", "00000000-0000-0000-0000-00000000000g", strings.Repeat("a", 300),
					"%7B%7D", "'--")
				r.path = strings.Join(steps, "/")
				return invalid
			}
		}
		return ""
	}},
	{"a key that is none", func(g *generator, r *generated) string {
		if r.Parameters.GetByInAndName("header", "Idempotency-Key") == nil {
			return ""
		}
		r.headers["Idempotency-Key"] = g.oneOf("", "a b", strings.Repeat("k", 258), "é", "\x7f")
		return invalid
	}},
	{"a body cut off", func(g *generator, r *generated) string {
		if r.body == nil {
			return ""
		}
		r.text = r.text[:g.IntN(len(r.text)-1)+1]
		return malformed
	}},
	{"a field twice", func(_ *generator, r *generated) string {
		for _, name := range fields(r) {
			key, _ := json.Marshal(name)
			r.text = "{" + string(key) + ":1," + r.text[1:]
			return malformed
		}
		return ""
	}},
	{"text that is not UTF-8", func(g *generator, r *generated) string {
		if r.body == nil {
			return ""
		}
		r.text = g.oneOf("{\"x\":\"\xff\"}", "{\"x\":\"\xed\xa0\x80\"}", `{"x":"\ud800"}`, "\xef\xbb\xbf{}",
			"{\"x\xc0\x80\":1}")
		return malformed
	}},
	{"something after the body", func(g *generator, r *generated) string {
		if r.body == nil {
			return ""
		}
		r.text += g.oneOf("{}", "x", ",", "\x00", "]")
		return malformed
	}},
	{"an unknown field", func(g *generator, r *generated) string {
		return g.change(r, func(all map[string]any, _ string) { all["x"+fmt.Sprint(g.IntN(99))] = g.any() })
	}},
	{"a field of another type", func(g *generator, r *generated) string {
		return g.change(r, func(all map[string]any, name string) {
			before := fmt.Sprintf("%T", all[name])
			for all[name] = g.any(); fmt.Sprintf("%T", all[name]) == before; {
				all[name] = g.any()
			}
		})
	}},
	{"a body of another type", func(g *generator, r *generated) string {
		if r.body == nil {
			return ""
		}
		r.text = g.oneOf("[]", "null", "1", `"x"`, "true", "[{}]")
		return invalid
	}},
	{"a field that is missing", func(_ *generator, r *generated) string {
		if r.body == nil || len(r.RequestBody.Value.Content["application/json"].Schema.Value.Required) == 0 {
			return ""
		}
		delete(r.body.(map[string]any), r.RequestBody.Value.Content["application/json"].Schema.Value.Required[0])
		r.write()
		return invalid
	}},
	{"a value out of its bounds", func(g *generator, r *generated) string {
		bad := map[string]any{"usd_amount": g.oneOf("49.99", "750.01", "50.001", "1e2", "-50", "", " 50", "0", "999999999"),
			"currency":  g.oneOf("", "bitcoin", strings.Repeat("m", 33), "\x00"),
			"reference": strings.Repeat("r", 201), "metadata": map[string]any{"": "x"},
			"url": g.oneOf("", "x", "http://shop.example.com/", "https://a b/"), "types": []any{"card.stolen"},
			"description": strings.Repeat("d", 257), "amount": g.oneOf("", "-1", "1e3", "0.0000000000001", "x"),
			"confirmations": 1001, "type": "card.stolen", "refund_address": "4AdUnd"}
		return g.change(r, func(all map[string]any, name string) {
			if v, ok := bad[name]; ok {
				all[name] = v
			} else {
				all["enabled"] = "yes"
			}
		})
	}},
	{"another Content-Type", func(g *generator, r *generated) string {
		if r.body == nil {
			return ""
		}
		r.headers["Content-Type"] = g.oneOf("text/plain", "application/xml", "application/jsonp", "multipart/form-data",
			"application/x-www-form-urlencoded", "x")
		return "415"
	}},
	{"an encoding", func(g *generator, r *generated) string {
		if r.body == nil {
			return ""
		}
		r.headers["Content-Encoding"] = g.oneOf("gzip", "br", "deflate", "zstd")
		return "415"
	}},
	{"a body that is too long", func(_ *generator, r *generated) string {
		if r.body == nil {
			return ""
		}
		r.text += strings.Repeat(" ", 64<<10)
		return "413"
	}},
	{"a body nested deep", func(g *generator, r *generated) string {
		if r.body == nil {
			return ""
		}
		r.text = `{"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}"
		return malformed + " " + invalid
	}},
	{"odd headers", func(g *generator, r *generated) string {
		r.headers[g.oneOf("Accept", "Accept-Encoding", "Range", "If-Match", "Prefer", "X-Request-Id", "Expect-CT", "Origin",
			"Forwarded")] = g.oneOf("", "\xff", "*/*;q=x", strings.Repeat("a", 2000), "bytes=0-1", "null")
		return "200 201 202 204 304 404 409 422"
	}},
	{"HEAD", func(_ *generator, r *generated) string {
		if r.method != http.MethodGet {
			return ""
		}
		r.method = http.MethodHead
		return "200 304 404 422"
	}},
}

func (g *generator) oneOf(values ...string) string { return values[g.IntN(len(values))] }

// any returns a value of any type.
func (g *generator) any() any {
	return []any{nil, true, 7.5, "x", []any{nil}, map[string]any{"x": 1.0}}[g.IntN(6)]
}

// query sets one of the operation's parameters to a value that bad derives from
// its schema.
func (g *generator) query(r *generated, bad func(*openapi3.Schema) string) string {
	for _, i := range g.Perm(len(r.Parameters)) {
		if p := r.Parameters[i].Value; p.In == "query" {
			if value := bad(p.Schema.Value); value != "" {
				r.query.Set(p.Name, value)
				return invalid
			}
		}
	}
	return ""
}

func fields(r *generated) []string {
	all, _ := r.body.(map[string]any)
	return slices.Sorted(maps.Keys(all))
}

// change modifies one field of the body.
func (g *generator) change(r *generated, how func(all map[string]any, field string)) string {
	names := fields(r)
	if len(names) == 0 {
		return ""
	}
	how(r.body.(map[string]any), names[g.IntN(len(names))])
	r.write()
	return invalid
}
