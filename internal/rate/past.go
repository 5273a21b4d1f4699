package rate

import (
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

const (
	// window is how long an accepted rate bounds those after it.
	window = time.Hour
	// repeated is how long a rate that stays the same is not kept again.
	repeated = time.Minute
)

// past is what a coin was taken to be worth, oldest first. Nothing is quoted
// from it.
type past []card.AcceptedRate

// last returns the last accepted rate, however old it is; the zero AcceptedRate
// if there is none.
func (p past) last() card.AcceptedRate {
	if len(p) == 0 {
		return card.AcceptedRate{}
	}
	return p[len(p)-1]
}

// recent returns what bounds the next rate: the last hour, at least the last
// accepted rate, but nothing from before an operator's acceptance. It shares
// p's elements.
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

// beyond returns the oldest accepted rate that usd is more than percent away
// from, if there is one.
func (p past) beyond(usd int64, percent card.Decimal) (card.AcceptedRate, bool) {
	for _, r := range p {
		if farther(usd, r.USD.Units, percent) {
			return r, true
		}
	}
	return card.AcceptedRate{}, false
}

// with returns p with another rate, which is newer. The same rate again is left
// out for a minute.
func (p past) with(r card.AcceptedRate) past {
	if last := p.last(); last.USD == r.USD && r.At.Sub(last.At) < repeated {
		return p
	}
	return append(slices.Clone(p), r)
}

// merge returns p with others that it lacks.
func (p past) merge(others past) past {
	all := slices.Clone(p)
	for _, r := range others {
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
