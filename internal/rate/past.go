package rate

import (
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	// window is how long an accepted rate limits later ones.
	window = time.Hour
	// repeatAfter is the interval between additions of an unchanged rate.
	repeatAfter = time.Minute
)

// past is the accepted rates of a coin, oldest first. They are never quoted.
type past []card.AcceptedRate

// last returns the last accepted rate at any age; the zero AcceptedRate if
// there is none.
func (p past) last() card.AcceptedRate {
	if len(p) == 0 {
		return card.AcceptedRate{}
	}
	return p[len(p)-1]
}

// recent returns the rates that limit the next one: the rates of the last hour,
// or else the last one, and none from before an operator's acceptance. It
// shares p's elements.
func (p past) recent(now time.Time) past {
	from := 0
	for i, r := range p {
		switch {
		case now.Sub(r.At) > window:
			from = i + 1
		case r.Note != "":
			from = i
		}
	}
	return p[max(0, min(from, len(p)-1)):]
}

// beyond returns the oldest accepted rate that differs from usd by more than
// percent, if there is one.
func (p past) beyond(usd int64, percent card.Decimal) (card.AcceptedRate, bool) {
	for _, r := range p {
		if farther(usd, r.USD.Units, percent) {
			return r, true
		}
	}
	return card.AcceptedRate{}, false
}

// with returns p with a newer rate. It omits an unchanged rate for a minute.
func (p past) with(r card.AcceptedRate) past {
	if last := p.last(); last.USD == r.USD && r.At.Sub(last.At) < repeatAfter {
		return p
	}
	return append(slices.Clone(p), r)
}

// merge returns p, and the rates of q that it lacks.
func (p past) merge(q past) past {
	all := slices.Clone(p)
	for _, r := range q {
		if !slices.ContainsFunc(p, func(known card.AcceptedRate) bool { return known.ID == r.ID }) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b card.AcceptedRate) int { return a.At.Compare(b.At) })
	return all
}

// decision returns the last acceptance by an operator, if there is one.
func (p past) decision() (card.AcceptedRate, bool) {
	for _, r := range slices.Backward(p) {
		if r.Note != "" {
			return r, true
		}
	}
	return card.AcceptedRate{}, false
}
