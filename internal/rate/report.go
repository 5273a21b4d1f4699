package rate

import "github.com/cardmint/cardmint/internal/card"

// Report is the state of a coin's rate, for metrics.
type Report struct {
	Currency string
	Rate     card.Rate // as returned by Rate; zero if there is none
	// Median is the median of the usable quotes of the latest Tick; 0 if there
	// was none.
	Median card.Decimal
	// Quotes are the quotes of the latest Tick, by source.
	Quotes []SourceQuote
	// Agreeing is the number of quotes that are fresh and agree, and Quorum the
	// required number.
	Agreeing, Quorum int
}

// SourceQuote is a quote with its source.
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
		quotes := l.judged[coin].quotes
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
		used, _ := filterQuotes(quotes, l.cfg.Now(), l.cfg)
		r.Agreeing = len(used)
		r.Median = card.Decimal{Units: median(fresh), Scale: card.RateScale}
		all[i] = r
	}
	return all
}
