package rate

import "github.com/cardmint/cardmint/internal/card"

// Report is what is known about a coin, for monitoring.
type Report struct {
	Currency string
	Rate     card.Rate // as Rate returns it; zero if there is no fresh one
	// Median is the median of the quotes that were neither too old nor
	// implausible in the latest Tick; 0 if there was none.
	Median card.Decimal
	// Quotes are what sources answered in the latest Tick, by source. Those
	// that gave no quote are not there.
	Quotes []SourceQuote
	// Agreeing is how many of them are still good and agree, and Quorum how
	// many must.
	Agreeing, Quorum int
}

// SourceQuote is what a source answered.
type SourceQuote struct {
	Source string
	Quote
}

// Reports returns a report of each coin.
func (l *Live) Reports() []Report {
	all := make([]Report, len(l.cfg.Coins))
	for i, coin := range l.cfg.Coins {
		r := Report{Currency: coin, Quorum: l.cfg.Quorum}
		r.Rate, _ = l.rate(coin)
		l.mu.RLock()
		quotes := l.heard[coin].quotes
		l.mu.RUnlock()
		var fresh []quoted
		for _, q := range quotes {
			if q.Err == nil {
				r.Quotes = append(r.Quotes, SourceQuote{q.source, q.Quote})
			}
			if l.cfg.usable(q.Quote, l.cfg.Now()) == nil {
				fresh = append(fresh, q)
			}
		}
		used, _ := sift(quotes, l.cfg.Now(), l.cfg)
		r.Agreeing = len(used)
		r.Median = card.Decimal{Units: median(fresh), Scale: card.RateScale}
		all[i] = r
	}
	return all
}
