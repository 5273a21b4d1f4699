package cli

import (
	"io"
	"os"

	"github.com/cardmint/cardmint/internal/card"
)

// color is the code of a terminal color.
type color string

const (
	none   color = ""
	red    color = "31"
	green  color = "32"
	yellow color = "33"
)

// paint returns a text in a color if w supports colors. In a table, paint only
// the last column: the other columns are padded by their length.
func (g *globals) paint(w io.Writer, c color, text string) string {
	if c == none || !colors(g.Color, w) {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// colors reports whether w supports colors. By default, terminals do unless
// NO_COLOR (no-color.org) is set.
func colors(when string, w io.Writer) bool {
	switch when {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// stateColor returns a color that shows whether a state needs attention.
func stateColor(s card.PaymentState) color {
	switch s {
	case card.Paid:
		return green
	case card.Underpaid, card.Late:
		return yellow
	case card.Reversed:
		return red
	}
	return none
}
