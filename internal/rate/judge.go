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

// quoted is what one source said of a coin.
type quoted struct {
	source string
	Quote
}

// standing is what is known of a coin between two Ticks.
type standing struct {
	last      card.Rate // the last accepted one, also when it is too old to quote: a jump is measured from it
	withdrawn bool      // last must not be quoted, however fresh
	why       error     // why the latest Tick accepted no rate; nil if it did
	dropped   []dropped // by the latest Tick, ordered by source
	held      hold
}

// dropped is a source that a rate was made without.
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

// missing returns the names of the dropped sources, but for those that never had a market.
func (s standing) missing() []string {
	var names []string
	for _, d := range s.dropped {
		if !errors.Is(d.why, errNoMarket) {
			names = append(names, d.source)
		}
	}
	return names
}

// hold is a run of consecutive Ticks whose medians jumped to the same place.
type hold struct {
	low, high int64
	ticks     int
}

// with returns the run that a further median makes: a longer one, or a new one if it is elsewhere.
func (h hold) with(median int64, spread card.Decimal) hold {
	low, high := min(h.low, median), max(h.high, median)
	if h.ticks == 0 || farther(high, low, spread) {
		return hold{median, median, 1}
	}
	return hold{low, high, h.ticks + 1}
}

// judge decides what a coin is worth from one Tick's quotes and what stood before. It has no I/O and changes nothing.
//
// A coin's last rate goes on while there is no new one, but it is withdrawn when the market seems to be below it: when the median is
// below the floor, or jumped down and is held. Quoting on would sell dollars for coin that may be worth less by now.
func judge(coin string, quotes []quoted, before standing, now time.Time, cfg Config) standing {
	after := standing{last: before.last, withdrawn: before.withdrawn}
	used, left := sift(quotes, now, cfg)
	after.dropped = left
	if len(used) < cfg.Quorum {
		after.why = fmt.Errorf("%d of %d sources can be used, and %d are needed: %s", len(used), len(quotes), cfg.Quorum, list(left))
		return after
	}
	rate := rateOf(used, now)
	last, floor := before.last.USD, cfg.Floor[coin]
	switch {
	case rate.USD.Units < floor.Units:
		after.withdrawn = true
		after.why = fmt.Errorf("%s is below the floor of %s (%s)", rate.USD, floor, rate.Source)
		return after
	case last.Units > 0 && farther(rate.USD.Units, last.Units, cfg.MaxJump):
		after.held = before.held.with(rate.USD.Units, cfg.MaxSpread)
		if after.held.ticks < cfg.HoldTicks {
			after.withdrawn = before.withdrawn || rate.USD.Units < last.Units
			after.why = fmt.Errorf("%s is more than %s percent from the last rate %s, and is held until it stood %d times (now %d; %s)",
				rate.USD, cfg.MaxJump, last, cfg.HoldTicks, after.held.ticks, rate.Source)
			return after
		}
	}
	return standing{last: rate, dropped: left}
}

// sift returns the quotes that can be used and the sources that can't, each ordered by source.
func sift(quotes []quoted, now time.Time, cfg Config) (used []quoted, left []dropped) {
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

// usable returns why a quote must be dropped, whatever the others say. What a source checked is checked again: it may be anybody's.
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

// timely returns why something of the time at must not be quoted from now.
func (c Config) timely(at, now time.Time) error {
	if age := now.Sub(at); age > c.MaxAge {
		return fmt.Errorf("is %s old, more than %s", age.Round(time.Second), c.MaxAge)
	}
	if ahead := at.Sub(now); ahead > c.MaxAhead { // not -age: the difference of far times is cut to what fits
		return fmt.Errorf("is from %s in the future, more than %s", ahead.Round(time.Second), c.MaxAhead)
	}
	return nil
}

// rateOf returns the median of quotes that are ordered by source. It is as old as the oldest of them.
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

// median returns the middle of quotes, of an even number the mean of the two middle ones, rounded down. The mean of two camps is far
// from both, so that none of them wins; either one of the two would be near its own camp.
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

// farther reports whether value is more than percent of reference away from it.
func farther(value, reference int64, percent card.Decimal) bool {
	distance := new(big.Int).Sub(big.NewInt(value), big.NewInt(reference))
	distance.Mul(distance.Abs(distance), hundred(percent.Scale))
	return distance.Cmp(new(big.Int).Mul(big.NewInt(reference), big.NewInt(percent.Units))) > 0
}

// hundred returns 100 in units of 10^-scale.
func hundred(scale int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale+2)), nil)
}

// percentScale is how many decimals a percentage may have.
const percentScale = 4

// isPercent reports whether p is a percentage from 0 to 100.
func isPercent(p card.Decimal) bool {
	return p.Scale >= 0 && p.Scale <= percentScale && p.Units >= 0 && big.NewInt(p.Units).Cmp(hundred(p.Scale)) <= 0
}

func list(left []dropped) string {
	texts := make([]string, len(left))
	for i, d := range left {
		texts[i] = d.String()
	}
	return strings.Join(texts, "; ")
}
