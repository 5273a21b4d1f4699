package card

import (
	"math"
	"strings"
)

// Nearest returns the option that a name most resembles, to suggest the
// intended one: "" if more than half of each option would have to change. It
// ignores the case of the name; of equals, the last one wins.
func Nearest[S ~string](name string, options []S) (nearest S) {
	name = strings.ToLower(name)
	least := math.MaxInt
	for _, option := range options {
		if len(name) > 2*len(option) {
			continue // too different, and a long name would take long
		}
		if n := distance(name, string(option)); n <= least && 2*n <= len(option) {
			nearest, least = option, n
		}
	}
	return nearest
}

// distance returns how many bytes must be inserted, deleted or replaced to turn
// a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a prefix of a to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
