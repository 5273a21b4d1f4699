package issue

import (
	"slices"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
)

// Route says which cards a supplier is asked for.
type Route struct {
	Supplier    Supplier
	Min, Max    card.USD // inclusive
	Concurrency int      // requests at the same time; 0 for 16
	PerSecond   float64  // cards that one process asks for; 0 for no limit
}

func (r Route) makes(usd card.USD) bool { return r.Min <= usd && usd <= r.Max }

// Routes are suppliers with different names, in the order in which they are
// asked. Another one is asked only after those before it clearly declined, so
// that no card is ever asked of two suppliers that might both make it.
type Routes []Route

// Only returns routes with one supplier, which makes every card.
func Only(s Supplier) Routes { return Routes{{Supplier: s, Min: card.MinUSD, Max: card.MaxUSD}} }

// have reports whether there is a supplier of that name.
func (r Routes) have(supplier string) bool {
	return slices.ContainsFunc(r, func(x Route) bool { return x.Supplier.Name() == supplier })
}

// Share is an amount of cards that a supplier is asked for.
type Share struct {
	Supplier string
	Min, Max card.USD // inclusive
}

func (r Routes) shares() []Share {
	shares := make([]Share, len(r))
	for i, x := range r {
		shares[i] = Share{x.Supplier.Name(), x.Min, x.Max}
	}
	return shares
}

// Refusal is a supplier's clear answer that it makes no card.
type Refusal struct {
	Supplier  string `json:"supplier"`
	Reason    string `json:"reason"`
	Temporary bool   `json:"temporary,omitempty"` // a later request may succeed
}

// next returns the supplier to ask for a card of an amount; "" if all of them
// refused, or none makes such cards.
func (r Routes) next(usd card.USD, refused []Refusal) string {
	for _, x := range r {
		if x.makes(usd) && !refusedBy(x.Supplier.Name(), refused) {
			return x.Supplier.Name()
		}
	}
	return ""
}

func refusedBy(supplier string, refused []Refusal) bool {
	return slices.ContainsFunc(refused, func(f Refusal) bool { return f.Supplier == supplier })
}

// reasons returns why no card could be had, for operators.
func reasons(refused []Refusal) string {
	if len(refused) == 1 {
		return refused[0].Reason
	}
	texts := make([]string, len(refused))
	for i, f := range refused {
		texts[i] = f.Supplier + ": " + f.Reason
	}
	return clean(strings.Join(texts, "; "))
}

func anyTemporary(refused []Refusal) bool {
	return slices.ContainsFunc(refused, func(f Refusal) bool { return f.Temporary })
}
