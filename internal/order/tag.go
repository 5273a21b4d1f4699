package order

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Tagger tells what clients see by tags that cost less than reading it.
type Tagger struct {
	store  Tags
	masked bool
}

// Tagger returns what tags the service's cards.
func (s *Service) Tagger() *Tagger { return &Tagger{s.store, s.masks(reading)} }

// Tag returns a tag of what cards show that were read with their Tag. It
// changes whenever that changes, and may change when it does not.
func (t *Tagger) Tag(cards ...*card.Card) string {
	tags := make([]string, len(cards))
	for i, c := range cards {
		tags[i] = c.Tag
	}
	return t.tag(tags)
}

// tag returns a tag of cards that have these tags, as this process shows them.
func (t *Tagger) tag(tags []string) string {
	h := sha256.New()
	if t.masked {
		h.Write([]byte("masked "))
	}
	for _, tag := range tags {
		h.Write([]byte(tag + " "))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:15])
}

// TagOfCard returns the Tag of what GetCard would return, for less than reading
// it. The error is card.ErrNotFound if the account has no such card.
func (t *Tagger) TagOfCard(ctx context.Context, account, id uuid.UUID) (string, error) {
	tag, err := t.store.CardTag(ctx, account, id)
	if errors.Is(err, card.ErrNoRow) {
		return "", errNoCard
	}
	return t.tag([]string{tag}), err
}

// TagOfPage returns the Tag of all that ListCards would call its function with,
// for less than reading it, if filter.Limit is no more than a page. It is
// another one if cards are left out.
func (t *Tagger) TagOfPage(ctx context.Context, filter Filter) (string, error) {
	tags, err := t.store.PageTags(ctx, filter)
	return t.tag(tags), err
}
