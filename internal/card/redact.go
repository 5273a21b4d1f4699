package card

import "regexp"

var maybeNumber = regexp.MustCompile(`\d([ -]?\d){11,}`)

// Redact returns a text of somebody else's without whatever may be a card number: twelve digits or more, also in groups.
func Redact(text string) string { return maybeNumber.ReplaceAllString(text, "[number]") }
