package issue

import (
	"slices"
	"strings"

	"github.com/cardmint/cardmint/internal/card"
)

// Route is the part of all cards that is requested from a supplier.
type Route struct {
	Supplier    Supplier
	Min, Max    card.USD // inclusive
	Concurrency int      // requests at the same time; 0 for 16
	PerSecond   float64  // cards that each process requests; 0 for no limit
}

func (r Route) covers(usd card.USD) bool { return r.Min <= usd && usd <= r.Max }

// Routes are suppliers with different names, by priority. A request goes to the
// next one only after those before it clearly declined, so that two suppliers
// never issue the same card.
type Routes []Route

// Only returns routes with one supplier for every card.
func Only(s Supplier) Routes { return Routes{{Supplier: s, Min: card.MinUSD, Max: card.MaxUSD}} }

// contain reports whether there is a supplier with that name.
func (r Routes) contain(supplier string) bool {
	return slices.ContainsFunc(r, func(x Route) bool { return x.Supplier.Name() == supplier })
}

// Share is a route as the store sees it.
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

// Refusal is a supplier's clear refusal to issue a card.
type Refusal struct {
	Supplier  string `json:"supplier"`
	Reason    string `json:"reason"`
	Temporary bool   `json:"temporary,omitempty"` // a later request may succeed
}

// next returns the first supplier that covers an amount and has not refused; ""
// if there is none.
func (r Routes) next(usd card.USD, refused []Refusal) string {
	for _, x := range r {
		if x.covers(usd) && !refusedBy(x.Supplier.Name(), refused) {
			return x.Supplier.Name()
		}
	}
	return ""
}

func refusedBy(supplier string, refused []Refusal) bool {
	return slices.ContainsFunc(refused, func(f Refusal) bool { return f.Supplier == supplier })
}

// reasons returns the refusals as text for operators.
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
