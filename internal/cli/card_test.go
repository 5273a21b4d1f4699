package cli

import "testing"

func TestOneLine_ControlCharacters_AreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"shop":           "shop",
		"Zoë's \"shop\"": "Zoë's \"shop\"",
		`C:\shop`:        `C:\shop`,
		"a\nb\tc":        `a\nb\tc`,
		"\x1b[2Kshop":    `\x1b[2Kshop`,
		"\u009b2Kshop":   `\u009b2Kshop`,
		"shop\u202etxet": `shop\u202etxet`,
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
