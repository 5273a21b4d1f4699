package card

// Distance returns the Levenshtein distance of a and b in bytes, for
// suggestions after typing errors.
func Distance(a, b string) int {
	row := make([]int, len(b)+1) // the distances from the beginning of a to each beginning of b
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
