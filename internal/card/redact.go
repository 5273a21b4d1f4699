package card

import "regexp"

var maybeNumber = regexp.MustCompile(`\d([ -]?\d){11,}`)

// Redact returns a text from outside without anything that may be a card
// number: twelve digits or more, also in groups. Redact a value before it is
// inserted into a text, because the numbers of the text itself must stay.
func Redact(text string) string { return maybeNumber.ReplaceAllString(text, "[number]") }
