package order_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
)

func TestCheck_ClientData(t *testing.T) {
	t.Parallel()
	s, err := order.New(nil, nil, nil, nil, nil, order.Config{Currencies: []card.Currency{monero}})
	check(t, err)
	face := "\U0001f600" // one character, two units of UTF-16, four bytes
	pairs := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("key ", i)] = ""
		}
		return m
	}
	type wrong = []card.FieldError
	for name, tt := range map[string]struct {
		reference *string
		metadata  map[string]string
		want      wrong
	}{
		"nothing": {nil, nil, nil},
		"empty":   {ref(""), map[string]string{}, nil},
		"maximum": {ref(strings.Repeat(face, 200)),
			map[string]string{strings.Repeat(face, 40): strings.Repeat(face, 500)}, nil},
		"maximum pairs":      {nil, pairs(20), nil},
		"control characters": {ref("a\tb\n\x01\x7f\u0085"), map[string]string{"\n": "\x1b[31m"}, nil},
		"a long reference": {ref(strings.Repeat(face, 201)), nil,
			wrong{{Pointer: "/reference", Detail: "must have at most 200 characters"}}},
		"U+0000 in a reference": {ref("a\x00"), nil,
			wrong{{Pointer: "/reference", Detail: "must not contain the character U+0000"}}},
		"too many pairs": {nil, pairs(21), wrong{{Pointer: "/metadata", Detail: "must have at most 20 pairs"}}},
		"an empty key": {nil, map[string]string{"": "x"},
			wrong{{Pointer: "/metadata/", Detail: "its key must have 1 to 40 characters"}}},
		"a long key": {nil, map[string]string{strings.Repeat("k", 41): "x"},
			wrong{{Pointer: "/metadata/" + strings.Repeat("k", 41), Detail: "its key must have 1 to 40 characters"}}},
		"a long value": {nil, map[string]string{"a/b~c": strings.Repeat("v", 501)},
			wrong{{Pointer: "/metadata/a~1b~0c", Detail: "must have at most 500 characters"}}},
		"everything": {ref(strings.Repeat("x", 200) + "\x00"),
			map[string]string{"b\x00": strings.Repeat("v", 500) + "\x00", "a": "\x00", "fine": ""}, wrong{
				{Pointer: "/reference", Detail: "must have at most 200 characters; must not contain the character U+0000"},
				{Pointer: "/metadata/a", Detail: "must not contain the character U+0000"},
				{Pointer: "/metadata/b\x00",
					Detail: "must have at most 500 characters; must not contain the character U+0000; its key must not contain the character U+0000"},
			}},
	} {
		o, got := s.Check(order.Request{USDAmount: "150", Currency: "monero", Reference: tt.reference, Metadata: tt.metadata})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if made := o != (order.Order{}); made != (tt.want == nil) {
			t.Errorf("%s: returned an order: %t", name, made)
		}
	}
	_, got := s.Check(
		order.Request{USDAmount: "49", Currency: "x", Reference: ref("\x00"), Metadata: map[string]string{"": ""}})
	if len(got) != 4 {
		t.Errorf("not all errors: %v", got)
	}
}

func ref(s string) *string { return &s }

func TestCheckFilter(t *testing.T) {
	t.Parallel()
	s, err := order.New(nil, nil, nil, nil, nil,
		order.Config{Currencies: []card.Currency{monero}, Known: []card.Currency{monero, pebble}})
	check(t, err)
	const other = "is not a currency of this service; choose one of: monero, pebble"
	for _, tt := range []struct {
		filter order.Filter
		want   []card.FieldError
	}{
		{order.Filter{}, nil},
		{order.Filter{Currency: "pebble", Reference: "order-4711"}, nil}, // disabled, but stored cards may have it
		{order.Filter{Currency: "Monero"}, []card.FieldError{{Pointer: "query/currency", Detail: other}}},
		{order.Filter{Reference: "a\x00"},
			[]card.FieldError{{Pointer: "query/reference", Detail: "must not contain the character U+0000"}}},
		{order.Filter{Currency: "\xff", Reference: "\xff"},
			[]card.FieldError{{Pointer: "query/currency", Detail: other},
				{Pointer: "query/reference", Detail: "must be UTF-8"}}},
	} {
		if diff := cmp.Diff(tt.want, s.CheckFilter(tt.filter)); diff != "" {
			t.Errorf("%+v: %s", tt.filter, diff)
		}
	}
}

// orderWithData orders a card with client data.
func (s *fixture) orderWithData(reference *string, metadata map[string]string, key string) (*card.Card, bool, error) {
	s.t.Helper()
	o, wrong := s.orders.Check(
		order.Request{USDAmount: "150", Currency: "monero", Reference: reference, Metadata: metadata})
	if len(wrong) > 0 {
		s.t.Fatal(wrong)
	}
	return s.orders.CreateCard(s.t.Context(), s.account, o, key)
}

func TestCreateCard_ClientData_IsStoredAndHashed(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		pairs := map[string]string{"b": "2", "a": "1", "c": ""}
		const stored = `{"a":"1","b":"2","c":""}`
		s.spy.takeCalls()
		made, _, err := s.orderWithData(ref("order-4711"), pairs, "k")
		check(t, err)
		s.wantCalls("InsertCard")
		again, replay, err := s.orderWithData(ref("order-4711"), maps.Clone(pairs), "k")
		check(t, err)
		if !replay || again.UUID != made.UUID {
			t.Errorf("an equal order is not replayed: %t", !replay)
		}
		read, err := s.orders.GetCard(t.Context(), s.account, made.UUID)
		check(t, err)
		for what, c := range map[string]*card.Card{"made": made, "repeated": again, "read": read} {
			if c.Reference == nil || *c.Reference != "order-4711" || c.Metadata != stored {
				t.Errorf("%s: %v", what, c.Metadata.Reveal())
			}
		}
		for name, other := range map[string]struct {
			reference *string
			metadata  map[string]string
		}{
			"neither":                          {nil, nil},
			"no metadata":                      {ref("order-4711"), nil},
			"empty metadata":                   {ref("order-4711"), map[string]string{}},
			"no reference":                     {nil, pairs},
			"an empty reference":               {ref(""), pairs},
			"another reference":                {ref("order-4712"), pairs},
			"another value":                    {ref("order-4711"), map[string]string{"b": "2", "a": "1", "c": "3"}},
			"another key":                      {ref("order-4711"), map[string]string{"b": "2", "a": "1", "d": ""}},
			"keys for values":                  {ref("order-4711"), map[string]string{"2": "b", "1": "a", "c": ""}},
			"reference with metadata appended": {ref(`order-4711` + `metadata` + stored), nil},
			"metadata in the reference":        {ref(stored), pairs},
			"metadata in another value":        {ref("order-4711"), map[string]string{"a": `1","b":"2`, "c": ""}},
			"with another accent":              {ref("order\u0301-4711"), pairs},
		} {
			if _, _, err := s.orderWithData(other.reference, other.metadata, "k"); !errors.Is(err, card.ErrKeyReused) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	})
}

func TestListCards_FilterByReference(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		one, _, err := s.orderWithData(ref("order-4711"), nil, "")
		check(t, err)
		_, _, err = s.orderWithData(ref("order-47110"), nil, "")
		check(t, err)
		two, _, err := s.orderWithData(ref("order-4711"), nil, "")
		check(t, err)
		if got := s.list(order.Filter{Reference: "order-4711"}); len(got) != 2 || got[0] != two.UUID || got[1] != one.UUID {
			t.Errorf("%v", got)
		}
	})
}

// Corrupt metadata is omitted and reported. The rest of the card is returned.
func TestCards_CorruptMetadata_CardIsReturned(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		s.ready()
		made, _, err := s.orderWithData(ref("order-4711"), map[string]string{"canary": "canary"}, "k")
		check(t, err)
		var log bytes.Buffer
		s.db.LogTo(slog.New(slog.NewTextHandler(&log, nil)))
		s.exec("UPDATE cards SET metadata = '{canary' WHERE uuid = $1", made.UUID)
		read, err := s.orders.GetCard(t.Context(), s.account, made.UUID)
		check(t, err)
		again, _, err := s.orderWithData(ref("order-4711"), map[string]string{"canary": "canary"}, "k")
		check(t, err)
		if read.Metadata != "" || again.Metadata != "" || *read.Reference != "order-4711" ||
			len(s.list(order.Filter{})) != 1 {
			t.Errorf("read %q", read.Metadata.Reveal())
		}
		if text := log.String(); strings.Count(text, "level=ERROR") != 1 ||
			!strings.Contains(text, "metadata="+made.UUID.String()) || strings.Contains(text, "canary") ||
			strings.Contains(text, "order-4711") {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// Pages of cards with long metadata are shorter, to limit memory.
func TestListCards_LongMetadata_PagesAreShort(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, s *fixture) {
		all := s.insertCards(330)
		s.exec("UPDATE cards SET metadata = $1 WHERE account_id = $2", `{"a":"`+strings.Repeat("x", 42_000)+`"}`, s.account)
		if got := s.list(order.Filter{}); !slices.Equal(got, all) {
			t.Errorf("%d cards", len(got))
		}
		s.wantCalls("Cards 100", "Cards 49", "Cards 49", "Cards 49", "Cards 49", "Cards 49")
	})
}
