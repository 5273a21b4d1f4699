package order

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Tag returns a tag of what cards show that were read with their Tag. It changes whenever that changes, and may change when it does not.
func (s *Service) Tag(cards ...*card.Card) string {
	tags := make([]string, len(cards))
	for i, c := range cards {
		tags[i] = c.Tag
	}
	return s.tag(tags)
}

// tag returns a tag of cards that have these tags, as this process shows them.
func (s *Service) tag(tags []string) string {
	h := sha256.New()
	if s.masks(reading) {
		h.Write([]byte("masked "))
	}
	for _, t := range tags {
		h.Write([]byte(t + " "))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:15])
}

// TagOfCard returns the Tag of what GetCard would return, for less than reading it. The error is card.ErrNotFound if the account has no
// such card.
func (s *Service) TagOfCard(ctx context.Context, account, id uuid.UUID) (string, error) {
	t, err := s.store.CardTag(ctx, account, id)
	if errors.Is(err, card.ErrNoRow) {
		return "", errNoCard
	}
	return s.tag([]string{t}), err
}

// TagOfPage returns the Tag of all that ListCards would call its function with, for less than reading it, if filter.Limit is no more than
// a page. It is another one if cards are left out.
func (s *Service) TagOfPage(ctx context.Context, filter Filter) (string, error) {
	tags, err := s.store.PageTags(ctx, filter)
	return s.tag(tags), err
}
