package rate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/panics"
)

// Config configures the trust in sources. Percentages have at most 4 decimals.
type Config struct {
	// Coins are the codes of the currencies to fetch, such as "monero". At
	// least one is required.
	Coins []string
	// Quorum is the number of sources that must agree on a rate. Defaults to 2;
	// with 1, a single source is trusted.
	Quorum int
	// MaxAge is the largest age of a quote, and therefore of a rate, by its
	// source's own time. Defaults to 5 min.
	MaxAge time.Duration
	// MaxAhead limits how far a quote's time is in the future. Defaults to 30
	// s.
	MaxAhead time.Duration
	// MaxSpread is the largest distance of a quote from the median of all
	// quotes, in percent of the median. Quotes beyond it are dropped. Defaults
	// to 3.
	MaxSpread card.Decimal
	// MaxJump is the largest distance of a rate from the last accepted one, in
	// percent of that, at any age: the first quotes after an outage are the
	// least trustworthy. A larger jump is held. Defaults to 15.
	MaxJump card.Decimal
	// HoldTicks is the number of consecutive Ticks with medians within
	// MaxSpread that confirm a jump. Defaults to 3; with 1, no jump is held.
	HoldTicks int
	// MaxMove is the largest distance of a rate from the rates accepted within
	// the last hour, and from the last one at any age, in percent of those. A
	// rate that is beyond it for HoldTicks consecutive Ticks is parked: only an
	// operator can accept it. Defaults to 30.
	MaxMove card.Decimal
	// Floor is the lowest quoted rate of a coin, in US dollars by currency
	// code. Defaults to none.
	Floor map[string]card.Decimal
	// Ceiling is the highest quoted rate of a coin, in US dollars by currency
	// code. Defaults to none.
	Ceiling map[string]card.Decimal
	// Timeout limits a request to one source. Defaults to 10 s; at most a
	// minute.
	Timeout time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// fill fills in the defaults.
func (c *Config) fill() {
	c.Quorum = cmp.Or(c.Quorum, 2)
	c.MaxAge = cmp.Or(c.MaxAge, 5*time.Minute)
	c.MaxAhead = cmp.Or(c.MaxAhead, 30*time.Second)
	c.MaxSpread = cmp.Or(c.MaxSpread, card.Decimal{Units: 3})
	c.MaxJump = cmp.Or(c.MaxJump, card.Decimal{Units: 15})
	c.HoldTicks = cmp.Or(c.HoldTicks, 3)
	c.MaxMove = cmp.Or(c.MaxMove, card.Decimal{Units: 30})
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Validate fills in the defaults, and returns an error that lists every invalid
// field.
func (c *Config) Validate() error {
	c.fill()
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(len(c.Coins) == 0, "coins: at least one is needed")
	for i, coin := range c.Coins {
		refuse(coin == "" || slices.Contains(c.Coins[:i], coin), "coins: %q is empty or listed twice", coin)
	}
	refuse(c.Quorum < 1, "quorum: must be at least 1")
	refuse(c.HoldTicks < 1, "hold ticks: must be at least 1")
	refuse(c.MaxAge < 0, "max age: must be more than 0")
	refuse(c.MaxAhead < 0, "max ahead: must be more than 0")
	refuse(c.Timeout < 0 || c.Timeout > maxTimeout, "timeout: must be more than 0, and at most %s", maxTimeout)
	const percent = "%s: must be more than 0 and at most 100 percent, with at most %d decimals"
	refuse(!isPercent(c.MaxSpread) || c.MaxSpread.Units == 0, percent, "max spread", percentScale)
	refuse(!isPercent(c.MaxJump) || c.MaxJump.Units == 0, percent, "max jump", percentScale)
	refuse(!isPercent(c.MaxMove) || c.MaxMove.Units == 0, percent, "max move", percentScale)
	for name, bounds := range map[string]map[string]card.Decimal{"floor": c.Floor, "ceiling": c.Ceiling} {
		for coin, usd := range bounds {
			refuse(!slices.Contains(c.Coins, coin), "%s: %q is not one of the coins", name, coin)
			bound, err := exact(usd)
			refuse(err != nil || !plausible(bound), "%s of %s: must be %s, with at most %d decimals", name, coin, plausibleRange,
				card.RateScale)
		}
	}
	for coin, usd := range c.Ceiling {
		ceiling, _ := exact(usd)
		floor, _ := exact(c.Floor[coin])
		refuse(ceiling.Units < floor.Units, "ceiling of %s: must not be below its floor", coin)
	}
	return errors.Join(wrong...)
}

// exact returns usd at the scale of rates. It returns an error if that would
// lose digits.
func exact(usd card.Decimal) (card.Decimal, error) {
	if usd.Scale < 0 {
		return card.Decimal{}, errors.New("scale is negative")
	}
	return usd.Rescale(card.RateScale)
}

// rescale returns valid bounds at the scale of rates.
func rescale(bounds map[string]card.Decimal) map[string]card.Decimal {
	all := map[string]card.Decimal{}
	for coin, usd := range bounds {
		all[coin], _ = exact(usd)
	}
	return all
}

// Live provides the rates that several sources agreed on in the latest Ticks.
// It is safe for concurrent use.
type Live struct {
	sources []Source // by name
	log     *slog.Logger
	cfg     Config
	ticking chan struct{} // semaphore: one Tick at a time

	book    Book   // nil for none
	process string // name of this process in the book
	booking sync.Mutex
	stored  []card.ParkedRate // parked rates of this process in the book; guarded by booking

	// mu is separate from ticking and booking, so that readers do not wait for
	// sources and the book.
	mu       sync.RWMutex
	coins    map[string]coinState
	judged   map[string]judged
	unstored map[string]past // rates accepted by this process that the book may lack
}

// judged is the input of the latest Tick's judgment.
type judged struct {
	quotes []quoted
	before coinState
}

var _ order.Rates = (*Live)(nil)

// New returns live rates, without any before the first Tick. It returns an
// error if cfg is not valid, if two sources have the same name, or if a coin
// has fewer sources than the quorum.
func New(sources []Source, log *slog.Logger, cfg Config) (*Live, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(sources) < cfg.Quorum {
		return nil, fmt.Errorf("%d sources can't make a quorum of %d", len(sources), cfg.Quorum)
	}
	l := &Live{sources: slices.Clone(sources), log: log, cfg: cfg, ticking: make(chan struct{}, 1),
		coins: map[string]coinState{}, judged: map[string]judged{}, unstored: map[string]past{}}
	slices.SortFunc(l.sources, func(a, b Source) int { return strings.Compare(a.Name(), b.Name()) })
	for i, s := range l.sources[1:] {
		if s.Name() == l.sources[i].Name() {
			return nil, fmt.Errorf("rate source %s is listed twice", s.Name())
		}
	}
	l.cfg.Coins, l.cfg.Floor, l.cfg.Ceiling = slices.Clone(cfg.Coins), rescale(cfg.Floor), rescale(cfg.Ceiling)
	for _, coin := range cfg.Coins {
		served := 0
		for _, s := range l.sources {
			if s.Serves(coin) {
				served++
			}
		}
		if served < cfg.Quorum {
			return nil, fmt.Errorf("%s: %d of the sources have a market for it, and a quorum is %d", coin, served, cfg.Quorum)
		}
		l.coins[coin] = coinState{why: errors.New("no source was fetched yet")}
	}
	return l, nil
}

// Sources returns the names of the sources.
func (l *Live) Sources() []string {
	names := make([]string, len(l.sources))
	for i, s := range l.sources {
		names[i] = s.Name()
	}
	return names
}

// Tick fetches all sources at the same time and updates the rates. The error
// lists the coins without a new rate, with the reasons. Their last rate remains
// valid until it is too old, unless it was withdrawn. Tick returns when every
// source has answered or timed out, or when ctx is canceled. It does not wait
// for the book, which is for Follow.
func (l *Live) Tick(ctx context.Context) error {
	select {
	case l.ticking <- struct{}{}:
		defer func() { <-l.ticking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	answers := make([]map[string]Quote, len(l.sources))
	failures := make([]error, len(l.sources))
	var fetching sync.WaitGroup
	for i, s := range l.sources {
		fetching.Go(func() {
			failures[i] = panics.Call(func() (err error) {
				answers[i], err = l.fetch(ctx, s)
				return err
			})
			if stack := panics.Stack(failures[i]); stack.Key != "" {
				l.log.ErrorContext(ctx, "rate source panicked", "source", s.Name(), "error", failures[i], stack)
			}
		})
	}
	fetching.Wait()

	var without []error
	for _, coin := range l.cfg.Coins {
		before, after := l.judge(coin, answers, failures)
		if after.why != nil {
			without = append(without, fmt.Errorf("rate of %s: %w", coin, after.why))
			continue
		}
		if missing := after.missing(); ctx.Err() == nil && !slices.Equal(missing, before.missing()) {
			l.log.WarnContext(ctx, "sources missing from a rate changed", "currency", coin,
				"missing", missing, "dropped", list(after.dropped))
		}
		if l.book != nil && len(before.past) == 0 {
			l.log.WarnContext(ctx, "first rate of a currency accepted without comparison", "currency", coin, "rate",
				after.last.USD, "source", after.last.Source)
		}
	}
	return errors.Join(without...)
}

// judge judges a coin by the sources' answers, and returns the state before
// and after it.
func (l *Live) judge(coin string, answers []map[string]Quote, failures []error) (before, after coinState) {
	var quotes []quoted
	for i, s := range l.sources {
		if !s.Serves(coin) {
			continue
		}
		quote, there := answers[i][coin]
		switch {
		case failures[i] != nil:
			quote = Quote{Err: failures[i]}
		case !there:
			quote = Quote{Err: errNoQuote}
		}
		quotes = append(quotes, quoted{s.Name(), quote})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.coins[coin]
	after = judge(coin, quotes, before, l.cfg.Now(), l.cfg)
	l.judged[coin] = judged{quotes, before}
	l.adopt(coin, after)
	return before, after
}

func (l *Live) fetch(ctx context.Context, s Source) (map[string]Quote, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Timeout,
		fmt.Errorf("no answer within %s: %w", l.cfg.Timeout, context.DeadlineExceeded))
	defer cancel()
	coins := slices.DeleteFunc(slices.Clone(l.cfg.Coins), func(coin string) bool { return !s.Serves(coin) })
	if len(coins) == 0 {
		return nil, nil
	}
	return s.Fetch(ctx, coins)
}

// Rate implements order.Rates. A rate expires by its age, also if Tick no
// longer runs.
func (l *Live) Rate(currency string) (card.Rate, error) {
	rate, err := l.rate(currency)
	if err != nil {
		return card.Rate{}, card.ErrNoRate.WithCause(err)
	}
	return rate, nil
}

// Health returns an error if a coin has no fresh rate, with the dropped sources
// of each such coin.
func (l *Live) Health() error {
	var without []error
	for _, coin := range l.cfg.Coins {
		if _, err := l.rate(coin); err != nil {
			without = append(without, fmt.Errorf("rate of %s: %w", coin, err))
		}
	}
	return errors.Join(without...)
}

func (l *Live) rate(currency string) (card.Rate, error) {
	s := l.state(currency)
	if s.withdrawn || s.last.USD.Units == 0 {
		return card.Rate{}, s.why
	}
	err := l.cfg.timely(s.last.At, l.cfg.Now())
	switch {
	case err != nil && s.why != nil:
		return card.Rate{}, fmt.Errorf("the last one %w; since then: %w", err, s.why)
	case err != nil:
		return card.Rate{}, fmt.Errorf("the last one %w, and the sources have not been fetched since", err)
	}
	return s.last, nil
}

func (l *Live) state(coin string) coinState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s, known := l.coins[coin]
	if !known {
		s.why = errors.New("the currency is not configured")
	}
	return s
}
