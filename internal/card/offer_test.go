package card_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
)

func TestMergeOffers_Overlap_AddsUp(t *testing.T) {
	const all = card.Unlimited
	for name, test := range map[string]struct{ offers, want []card.Offer }{
		"nothing":  {nil, nil},
		"sold out": {[]card.Offer{{Min: 5, Max: 9}}, nil},
		"in order": {[]card.Offer{{Min: 100, Max: 100, Left: 2}, {Min: 50, Max: 50, Left: 1}},
			[]card.Offer{{Min: 50, Max: 50, Left: 1}, {Min: 100, Max: 100, Left: 2}}},
		"the same amount": {[]card.Offer{{Min: 50, Max: 50, Left: 2}, {Min: 50, Max: 50, Left: 1}},
			[]card.Offer{{Min: 50, Max: 50, Left: 3}}},
		"unlimited wins": {[]card.Offer{{Min: 50, Max: 90, Left: all}, {Min: 60, Max: 60, Left: 3}},
			[]card.Offer{{Min: 50, Max: 90, Left: all}}},
		"sold out within one": {[]card.Offer{{Min: 50, Max: 90, Left: all}, {Min: 60, Max: 60}},
			[]card.Offer{{Min: 50, Max: 90, Left: all}}},
		"ranges overlap": {[]card.Offer{{Min: 10, Max: 20, Left: 5}, {Min: 15, Max: 30, Left: 3}},
			[]card.Offer{{Min: 10, Max: 14, Left: 5}, {Min: 15, Max: 20, Left: 8}, {Min: 21, Max: 30, Left: 3}}},
		"ranges touch": {[]card.Offer{{Min: 10, Max: 20, Left: all}, {Min: 21, Max: 30, Left: all}},
			[]card.Offer{{Min: 10, Max: 30, Left: all}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, card.MergeOffers(test.offers)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestClipOffers_DropsAmountsOutOfRange(t *testing.T) {
	offers := []card.Offer{{Min: 1, Max: 100, Left: 1}, {Min: 10, Max: 10, Left: 2}, {Min: 60, Max: 70, Left: 3}}
	want := []card.Offer{{Min: 10, Max: 50, Left: 1}, {Min: 10, Max: 10, Left: 2}}
	if diff := cmp.Diff(want, card.ClipOffers(offers, 10, 50)); diff != "" {
		t.Error(diff)
	}
}
