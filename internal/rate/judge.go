package rate

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
)

// quoted is one source's quote of a coin.
type quoted struct {
	source string
	Quote
}

// ErrParked means that a rate is too far from the accepted ones: only an
// operator can accept it.
var ErrParked = errors.New("no card is sold until an operator accepts it with: cardmint rate accept")

// coinState is the state of a coin between two Ticks.
type coinState struct {
	past      past      // accepted rates
	unread    error     // why past is incomplete; nil if it is complete
	last      card.Rate // last rate accepted by this process, also if it is too old to quote
	withdrawn bool      // last must not be quoted, even if it is fresh
	why       error     // why the latest Tick accepted no rate; nil if it did
	dropped   []dropped // sources dropped by the latest Tick, by name
	held      deviation
	parked    *parked // nil for none
}

// parked is a rate that only an operator can accept.
type parked struct {
	card.Rate
	why   string
	since time.Time // rates of the coin have been parked since then
	until time.Time // it can be accepted until then
}

// dropped is a source that was not used.
type dropped struct {
	source string
	why    error
}

func (d dropped) String() string {
	const longest = 200
	why := strings.ToValidUTF8(d.why.Error(), "?")
	if len(why) > longest {
		why = strings.ToValidUTF8(why[:longest], "") + "..."
	}
	return d.source + ": " + why
}

// missing returns the names of the dropped sources.
func (s coinState) missing() []string {
	var names []string
	for _, d := range s.dropped {
		names = append(names, d.source)
	}
	return names
}

// deviation is a run of consecutive Ticks whose medians were too far from
// accepted rates.
type deviation struct {
	ticks     int
	low, high int64 // range of the latest similar medians
	similar   int   // their number
}

// with returns the run after another median. If that differs from the similar
// medians by more than spread, it starts a new range.
func (d deviation) with(median int64, spread card.Decimal) deviation {
	low, high := min(d.low, median), max(d.high, median)
	if d.ticks == 0 || farther(high, low, spread) {
		return deviation{d.ticks + 1, median, median, 1}
	}
	return deviation{d.ticks + 1, low, high, d.similar + 1}
}

// judge returns the state of a coin after one Tick's quotes. It has no side
// effects.
//
// If no new rate is accepted, the last one remains valid. It is withdrawn if
// the market may be below it, because the median is below the floor, or has
// jumped down and is held: quoting it would sell dollars for coin that may be
// worth less. It is also withdrawn if the median is parked, or above the
// ceiling, where the operator wants no sales.
func judge(coin string, quotes []quoted, before coinState, now time.Time, cfg Config) coinState {
	after := coinState{
		past: before.past.recent(now), unread: before.unread, last: before.last, withdrawn: before.withdrawn,
	}
	used, left := filterQuotes(quotes, now, cfg)
	after.dropped = left
	if len(used) < cfg.Quorum {
		after.parked = before.parked
		after.why = fmt.Errorf("%d of %d sources can be used, and %d are needed: %s", len(used), len(quotes), cfg.Quorum,
			list(left))
		if after.parked != nil {
			after.why = fmt.Errorf("%s: %w; since then: %w", after.parked.why, ErrParked, after.why)
		}
		return after
	}
	if before.unread != nil {
		after.why = fmt.Errorf("the accepted rates are not known: %w", before.unread)
		return after
	}
	rate := rateOf(used, now)
	floor, ceiling := cfg.Floor[coin], cfg.Ceiling[coin]
	switch {
	case rate.USD.Units < floor.Units:
		after.withdrawn = true
		after.why = fmt.Errorf("%s is below the floor of %s (%s)", rate.USD, floor, rate.Source)
		return after
	case ceiling.Units > 0 && rate.USD.Units > ceiling.Units:
		after.withdrawn = true
		after.why = fmt.Errorf("%s is above the ceiling of %s (%s)", rate.USD, ceiling, rate.Source)
		return after
	}
	if len(after.past) == 0 && len(left) > 0 && (floor.Units == 0 || ceiling.Units == 0) {
		after.why = fmt.Errorf(
			"the first rate can be compared with nothing, so that all %d sources must agree, unless a floor and a ceiling are set: %s",
			len(quotes), list(left))
		return after
	}
	if after.compare(rate, before, now, cfg); after.why != nil {
		return after
	}
	row := card.AcceptedRate{Currency: coin, USD: rate.USD, Source: rate.Source, At: now.UTC()}
	return coinState{past: after.past.with(row), last: rate, dropped: left}
}

// compare compares a rate with the accepted ones, and sets s.why if it can't be
// accepted now. A jump is held until enough Ticks confirm it. After that, a
// rate too far from one of the last hour, by one jump or many steps, is parked.
func (s *coinState) compare(rate card.Rate, before coinState, now time.Time, cfg Config) {
	last := s.past.last()
	far, beyond := s.past.beyond(rate.USD.Units, cfg.MaxMove)
	jumped := len(s.past) > 0 && farther(rate.USD.Units, last.USD.Units, cfg.MaxJump)
	if !beyond && !jumped {
		return
	}
	from := fmt.Sprintf("%s percent from the last rate %s", cfg.MaxJump, last.USD)
	if !jumped {
		from = fmt.Sprintf("%s percent from %s, accepted %s", cfg.MaxMove, far.USD, far.At.UTC().Format(time.RFC3339))
	}
	s.held = before.held.with(rate.USD.Units, cfg.MaxSpread)
	switch {
	case beyond && (s.held.ticks >= cfg.HoldTicks || before.parked != nil):
		s.withdrawn = true
		s.parked = &parked{Rate: rate, since: now, until: now.Add(cfg.MaxAge)}
		if before.parked != nil {
			s.parked.since = before.parked.since
		}
		s.parked.why = fmt.Sprintf("%s is more than %s percent from %s, accepted %s (%s)", rate.USD, cfg.MaxMove, far.USD,
			far.At.UTC().Format(time.RFC3339), rate.Source)
		s.why = fmt.Errorf("%s: %w", s.parked.why, ErrParked)
	case beyond || s.held.similar < cfg.HoldTicks:
		s.withdrawn = before.withdrawn || rate.USD.Units < last.USD.Units
		s.why = fmt.Errorf("%s is more than %s, and is held until seen %d times (now %d; %s)", rate.USD, from, cfg.HoldTicks,
			s.held.similar, rate.Source)
	}
}

// filterQuotes returns the quotes to use and the sources to drop, both by name.
func filterQuotes(quotes []quoted, now time.Time, cfg Config) (used []quoted, left []dropped) {
	var fresh []quoted
	for _, q := range slices.SortedFunc(slices.Values(quotes), bySource) {
		if err := cfg.usable(q.Quote, now); err != nil {
			left = append(left, dropped{q.source, err})
		} else {
			fresh = append(fresh, q)
		}
	}
	middle := median(fresh)
	for _, q := range fresh {
		if farther(q.USD.Units, middle, cfg.MaxSpread) {
			left = append(left, dropped{q.source, fmt.Errorf("quote %s is more than %s percent from the median %s",
				q.USD, cfg.MaxSpread, card.Decimal{Units: middle, Scale: card.RateScale})})
		} else {
			used = append(used, q)
		}
	}
	slices.SortFunc(left, func(a, b dropped) int { return cmp.Compare(a.source, b.source) })
	return used, left
}

func bySource(a, b quoted) int { return cmp.Compare(a.source, b.source) }

// usable returns an error if a quote must be dropped independently of the rest.
// It repeats the checks of our own sources, because Source is an open
// interface.
func (c Config) usable(q Quote, now time.Time) error {
	switch {
	case q.Err != nil:
		return q.Err
	case !plausible(q.USD):
		return errImplausible
	}
	if err := c.timely(q.At, now); err != nil {
		return fmt.Errorf("quote %w", err)
	}
	return nil
}

// timely returns an error if at is too old, or too far in the future, for a
// quote at the time now.
func (c Config) timely(at, now time.Time) error {
	if age := now.Sub(at); age > c.MaxAge {
		return fmt.Errorf("is %s old, more than %s", age.Round(time.Second), c.MaxAge)
	}
	if ahead := at.Sub(now); ahead > c.MaxAhead { // not -age, because Sub saturates
		return fmt.Errorf("is from %s in the future, more than %s", ahead.Round(time.Second), c.MaxAhead)
	}
	return nil
}

// rateOf returns the median of quotes, which must be ordered by source. It is
// as old as the oldest of them.
func rateOf(used []quoted, now time.Time) card.Rate {
	at, source := now, "median"
	for _, q := range used {
		if q.At.Before(at) {
			at = q.At
		}
		source += " " + q.source + "=" + q.USD.String()
	}
	return card.Rate{USD: card.Decimal{Units: median(used), Scale: card.RateScale}, At: at.UTC(), Source: source}
}

// median returns the median of quotes. If their number is even, that is the
// mean of the middle two, rounded down. If the quotes form two equal groups,
// the mean is far from both, so that neither wins; a quote of one group would
// favor that group.
func median(quotes []quoted) int64 {
	if len(quotes) == 0 {
		return 0
	}
	units := make([]int64, len(quotes))
	for i, q := range quotes {
		units[i] = q.USD.Units
	}
	slices.Sort(units)
	return (units[(len(units)-1)/2] + units[len(units)/2]) / 2 // plausible quotes are far from overflowing
}

// farther reports whether value differs from reference by more than percent of
// reference.
func farther(value, reference int64, percent card.Decimal) bool {
	distance := new(big.Int).Sub(big.NewInt(value), big.NewInt(reference))
	distance.Mul(distance.Abs(distance), hundred(percent.Scale))
	return distance.Cmp(new(big.Int).Mul(big.NewInt(reference), big.NewInt(percent.Units))) > 0
}

// hundred returns 100 in units of 10^-scale.
func hundred(scale int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale+2)), nil)
}

// percentScale is the largest number of decimals of a percentage.
const percentScale = 4

// isPercent reports whether p is a percentage from 0 to 100.
func isPercent(p card.Decimal) bool {
	return p.Scale >= 0 && p.Scale <= percentScale && p.Units >= 0 && big.NewInt(p.Units).Cmp(hundred(p.Scale)) <= 0
}

// list returns the dropped sources and the reasons, for errors.
func list(left []dropped) string {
	texts := make([]string, len(left))
	for i, d := range left {
		texts[i] = d.String()
	}
	return strings.Join(texts, "; ")
}
