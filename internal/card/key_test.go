package card_test

import (
	"testing"

	"github.com/cardmint/cardmint/internal/card"
)

func TestKeyOf_ReturnsKeyOfCiphertext(t *testing.T) {
	const id card.KeyID = 0x0a0b0c0d
	if got := string(id.Prefix()); got != "\x01\x0a\x0b\x0c\x0d" {
		t.Errorf("prefix %x", got)
	}
	for text, named := range map[string]bool{"\x01\x0a\x0b\x0c\x0d": true, "\x01\x0a\x0b\x0c\x0dmore": true,
		"\x01\x0a\x0b\x0c": false, "\x00\x0a\x0b\x0c\x0d": false, "": false} {
		got, ok := card.KeyOf([]byte(text))
		if ok != named || named && got != id {
			t.Errorf("%x: %v, %v", text, got, ok)
		}
	}
	if got, err := card.ParseKeyID(id.String()); err != nil || got != id || id.String() != "0a0b0c0d" {
		t.Errorf("%s: %v, %v", id, got, err)
	}
	for _, text := range []string{"", "a0b0c0d", "00a0b0c0d", "0a0b0c0g", "+a0b0c0d", "0x0b0c0d"} {
		if got, err := card.ParseKeyID(text); err == nil || got != 0 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
