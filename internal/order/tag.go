package order

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Tagger returns tags of cards, which cost less than reading them.
type Tagger struct {
	store  Tags
	masked bool
}

// Tagger returns a Tagger of the service's cards.
func (s *Service) Tagger() *Tagger { return &Tagger{s.store, s.masks(reading)} }

// Tag returns a tag of cards that were read with their Tag. It changes whenever
// the cards look different to a client, and may change at other times.
func (t *Tagger) Tag(cards ...*card.Card) string {
	tags := make([]string, len(cards))
	for i, c := range cards {
		tags[i] = c.Tag
	}
	return t.tag(tags)
}

// tag combines the tags of cards. Masked cards have other tags.
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

// TagOfCard returns the Tag of the card that GetCard would return. The error is
// card.ErrNotFound if the account has no such card.
func (t *Tagger) TagOfCard(ctx context.Context, account, id uuid.UUID) (string, error) {
	tag, err := t.store.CardTag(ctx, account, id)
	if errors.Is(err, card.ErrNoRow) {
		return "", errNoCard
	}
	return t.tag([]string{tag}), err
}

// TagOfPage returns the Tag of the cards that ListCards would return, if
// filter.Limit is at most a page. It differs if ListCards omits corrupt cards.
func (t *Tagger) TagOfPage(ctx context.Context, filter Filter) (string, error) {
	tags, err := t.store.PageTags(ctx, filter)
	return t.tag(tags), err
}
