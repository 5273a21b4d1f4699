package order

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cardmint/cardmint/internal/card"
)

// Limits of client data. Lengths are in Unicode code points.
const (
	maxReference     = 200
	maxMetadataPairs = 20
	maxMetadataKey   = 40
	maxMetadataValue = 500
)

// errNUL rejects text that PostgreSQL can't store.
var errNUL = errors.New("must not contain the character U+0000")

// checkClientData returns all errors of the client data.
func checkClientData(r Request) (errs []card.FieldError) {
	if r.Reference != nil {
		if err := errors.Join(checkLength(*r.Reference, 0, maxReference), checkNUL(*r.Reference)); err != nil {
			errs = append(errs, card.FieldError{Pointer: "/reference", Detail: inOneLine(err)})
		}
	}
	if len(r.Metadata) > maxMetadataPairs {
		errs = append(errs,
			card.FieldError{Pointer: "/metadata", Detail: fmt.Sprintf("must have at most %d pairs", maxMetadataPairs)})
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1") // RFC 6901
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		value := r.Metadata[key]
		err := errors.Join(checkLength(value, 0, maxMetadataValue), checkNUL(value))
		for _, of := range []error{checkLength(key, 1, maxMetadataKey), checkNUL(key)} {
			if of != nil {
				err = errors.Join(err, fmt.Errorf("its key %w", of))
			}
		}
		if err != nil {
			errs = append(errs, card.FieldError{Pointer: "/metadata/" + escape.Replace(key), Detail: inOneLine(err)})
		}
	}
	return errs
}

func checkLength(text string, least, most int) error {
	switch n := utf8.RuneCountInString(text); {
	case n >= least && n <= most:
		return nil
	case least == 0:
		return fmt.Errorf("must have at most %d characters", most)
	}
	return fmt.Errorf("must have %d to %d characters", least, most)
}

func checkNUL(text string) error {
	if strings.ContainsRune(text, 0) {
		return errNUL
	}
	return nil
}

// inOneLine returns the text of joined errors.
func inOneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// metadataText returns metadata in its stored form: JSON with sorted keys, or ""
// for none.
func metadataText(metadata map[string]string) card.Secret {
	if metadata == nil {
		return ""
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		panic(err) // strings only: can't happen
	}
	return card.Secret(text)
}

// appendClientData appends an order's client data, if any, to the text that is
// hashed. The result is unambiguous, because no value contains U+0000, and does
// not depend on the order or the JSON encoding of the metadata.
func appendClientData(text []byte, o Order) ([]byte, error) {
	if o.reference != nil {
		text = fmt.Appendf(text, "\x00reference\x00%s", o.reference.Reveal())
	}
	if o.metadata == "" {
		return text, nil
	}
	var pairs map[string]string
	if err := json.Unmarshal([]byte(o.metadata.Reveal()), &pairs); err != nil {
		return nil, errMetadata
	}
	text = append(text, "\x00metadata"...)
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		text = fmt.Appendf(text, "\x00%s\x00%s", key, pairs[key])
	}
	return text, nil
}

var errMetadata = errors.New("the metadata is not JSON")

// readMetadata reports corrupt metadata and omits it: the card, which may be paid
// for, must stay readable.
func (s *Service) readMetadata(ctx context.Context, c *card.Card) {
	if c.Metadata != "" && !json.Valid([]byte(c.Metadata.Reveal())) {
		s.store.ReportCorrupt(ctx, "metadata", c.UUID, errMetadata)
		c.Metadata = ""
	}
}

// CheckFilter returns all errors of a filter.
func (s *Service) CheckFilter(f Filter) (errs []card.FieldError) {
	if f.Currency != "" {
		if codes := codes(s.cfg.Known); !slices.Contains(codes, f.Currency) {
			errs = append(errs,
				card.FieldError{Pointer: "query/currency",
					Detail: "is not a currency of this service; choose one of: " + strings.Join(codes, ", ")})
		}
	}
	switch {
	case !utf8.ValidString(f.Reference.Reveal()):
		errs = append(errs, card.FieldError{Pointer: "query/reference", Detail: "must be UTF-8"})
	case checkNUL(f.Reference.Reveal()) != nil:
		errs = append(errs, card.FieldError{Pointer: "query/reference", Detail: errNUL.Error()})
	}
	return errs
}

// codes returns the codes of currencies.
func codes(of []card.Currency) []string {
	codes := make([]string, len(of))
	for i, c := range of {
		codes[i] = c.Code
	}
	return codes
}
