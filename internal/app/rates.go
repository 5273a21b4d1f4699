package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/chain"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/rate"
)

// RateConfig configures the exchange rates: live, with a quorum of sources, or
// fixed.
type RateConfig struct {
	Rate   map[string]string `env:"CARDMINT_RATE" placeholder:"COIN=USD" help:"Fixed rates instead of live ones, in US dollars for one coin, for example ${default_coin}=152.52. Only in test mode."`
	Live   LiveRateConfig    `embed:""`
	Markup string            `env:"CARDMINT_MARKUP" default:"0" placeholder:"PERCENT" help:"Percent that a card costs more than it is worth (${default})."`
}

// LiveRateConfig configures which sources to ask, and when to trust them.
type LiveRateConfig struct {
	RateSources   []string          `env:"CARDMINT_RATE_SOURCES" placeholder:"NAME" help:"Sources of live rates. Defaults to all that have a market for the coin."`
	RateURL       map[string]string `name:"rate-url" env:"CARDMINT_RATE_URL" placeholder:"SOURCE=URL" help:"Another address of a source, such as a proxy, for example kraken=https://rates.example."`
	RateEvery     time.Duration     `env:"CARDMINT_RATE_EVERY" default:"1m" placeholder:"DURATION" help:"How often to fetch rates (${default})."`
	RateQuorum    int               `env:"CARDMINT_RATE_QUORUM" default:"2" placeholder:"N" help:"How many sources must agree (${default})."`
	RateMaxAge    time.Duration     `env:"CARDMINT_RATE_MAX_AGE" default:"5m" placeholder:"DURATION" help:"How old a rate may be, by its source's own time (${default})."`
	RateMaxSpread string            `env:"CARDMINT_RATE_MAX_SPREAD" default:"3" placeholder:"PERCENT" help:"Leave out a source that differs from the median by more than this percentage (${default})."`
	RateMaxJump   string            `env:"CARDMINT_RATE_MAX_JUMP" default:"15" placeholder:"PERCENT" help:"Hold a rate that differs from the last one by more than this percentage until it has been seen three times (${default})."`
	RateMaxMove   string            `env:"CARDMINT_RATE_MAX_MOVE" default:"30" placeholder:"PERCENT" help:"Sell no card at a rate that differs by more than this percentage from any within the last hour, until an operator accepts it with 'rate accept' (${default})."`
	RateFloor     map[string]string `env:"CARDMINT_RATE_FLOOR" placeholder:"COIN=USD" help:"Sell no card below this rate, for example ${default_coin}=50. Live mode warns if it is not set."`
	RateCeiling   map[string]string `env:"CARDMINT_RATE_CEILING" placeholder:"COIN=USD" help:"Sell no card above this rate, for example ${default_coin}=5000. Live mode warns if it is not set."`
}

// open returns the rates of coins with the markup and, unless they are fixed,
// the live rates under it.
func (f RateConfig) open(log *slog.Logger, mode string, coins []card.Currency) (order.Rates, *rate.Live, error) {
	markup, err := percent("markup", f.Markup)
	if err != nil {
		return nil, nil, err
	}
	rates, live, err := f.unmarked(log, mode, coins)
	if err != nil {
		return nil, nil, err
	}
	marked, err := rate.Markup(rates, markup)
	return marked, live, WithHint(err, "--markup takes a percentage, for example 1.5")
}

func (f RateConfig) unmarked(log *slog.Logger, mode string, coins []card.Currency) (order.Rates, *rate.Live, error) {
	codes := make([]string, len(coins))
	for i, c := range coins {
		codes[i] = c.Code
	}
	if len(f.Rate) == 0 {
		live, err := f.Live.Open(log, codes)
		return live, live, err
	}
	if mode == card.LiveMode {
		return nil, nil, WithHint(errors.New("fixed rates are for test mode"), "leave --rate out, so that live ones are used")
	}
	for _, code := range codes {
		if f.Rate[code] == "" {
			return nil, nil, WithHint(fmt.Errorf("no rate for %s", code),
				"set it with --rate %s=152.52, or leave --rate out for live rates", code)
		}
	}
	fixed, err := rate.NewFixed(f.Rate, time.Now)
	return fixed, nil, WithHint(err, "--rate takes US dollars for one coin, for example %s=152.52", codes[0])
}

// markets returns the names of the markets of coins, by currency and source.
func markets(codes []string) map[string]map[string]string {
	all := chain.Markets()
	maps.DeleteFunc(all, func(code string, _ map[string]string) bool { return !slices.Contains(codes, code) })
	return all
}

// Open returns live rates of the coins with the given codes.
func (f LiveRateConfig) Open(log *slog.Logger, codes []string) (*rate.Live, error) {
	switch {
	case f.RateEvery <= 0 || f.RateMaxAge <= f.RateEvery:
		return nil, WithHint(errors.New("rates would expire before the next fetch"),
			"let --rate-max-age be more than --rate-every, and both more than 0")
	case f.RateQuorum < 1:
		return nil, WithHint(errors.New("a quorum is at least 1"),
			"the default of --rate-quorum is 2: a single source is not enough")
	}
	cfg := rate.Config{Coins: codes, Quorum: f.RateQuorum, MaxAge: f.RateMaxAge, Timeout: sourceTimeout(f.RateEvery)}
	var err error
	if cfg.MaxSpread, err = percent("rate-max-spread", f.RateMaxSpread); err != nil {
		return nil, err
	}
	if cfg.MaxJump, err = percent("rate-max-jump", f.RateMaxJump); err != nil {
		return nil, err
	}
	if cfg.MaxMove, err = percent("rate-max-move", f.RateMaxMove); err != nil {
		return nil, err
	}
	if cfg.MaxSpread.Units == 0 || cfg.MaxJump.Units == 0 || cfg.MaxMove.Units == 0 {
		return nil, WithHint(errors.New("no two rates are quite the same"),
			"let --rate-max-spread, --rate-max-jump and --rate-max-move be more than 0 percent")
	}
	if cfg.Floor, err = bounds("floor", f.RateFloor); err != nil {
		return nil, err
	}
	if cfg.Ceiling, err = bounds("ceiling", f.RateCeiling); err != nil {
		return nil, err
	}
	sources, err := rate.Sources(f.RateSources, f.RateURL, markets(codes))
	if err != nil {
		return nil, WithHint(err,
			"leave --rate-sources out to ask every source that has a market, or see them with: cardmint rate show --help")
	}
	live, err := rate.New(sources, log, cfg)
	return live, WithHint(err, "see what the --rate flags take with: cardmint serve --help")
}

// bounds reads the rates of a flag, by currency.
func bounds(name string, texts map[string]string) (map[string]card.Decimal, error) {
	all := map[string]card.Decimal{}
	for code, text := range texts {
		usd, err := card.ParseDecimal(text, card.RateScale)
		if err != nil {
			return nil, WithHint(fmt.Errorf("rate %s of %s: %q %w", name, code, text, err),
				"--rate-%s takes US dollars for one coin, for example %s=150", name, code)
		}
		all[code] = usd
	}
	return all, nil
}

// sourceTimeout returns the timeout of a source that is asked once per
// interval. One that hangs must not delay the next fetch.
func sourceTimeout(every time.Duration) time.Duration {
	return min(max(every, time.Second), 10*time.Second)
}

func percent(flag, text string) (card.Decimal, error) {
	p, err := card.ParseDecimal(text, 4)
	if err != nil {
		return p, WithHint(fmt.Errorf("--%s: %q %w", flag, text, err), "it takes a percentage, for example 1.5")
	}
	return p, nil
}

// followEvery is the longest interval between two reads of the rates that
// operators have accepted.
const followEvery = 2 * time.Second

// addRates adds the loops of live rates, which are compared with the accepted
// rates in the database, and a readiness check for each coin.
func (p *process) addRates(ctx context.Context) {
	p.live.UseBook(p.dbs.worker, ProcessName())
	_ = p.live.Follow(ctx) // so that the first fetch can be compared; the loop logs errors
	fetched := make(wake, 1)
	p.add(loop{name: "accepted rates", every: followEvery, wake: fetched, fixedRate: true, tick: p.live.Follow,
		close: p.live.Follow, grace: closeGrace})
	p.add(ratesLoop(p.live, p.cfg.Rates.Live.RateEvery, fetched.notify))
	for _, coin := range p.cfg.Coins {
		name := "rates"
		if len(p.cfg.Coins) > 1 { // with one coin, alerts know the short name
			name += " " + coin.Code
		}
		p.check(name, coin.Code, func(context.Context) error { return checkRate(p.live, coin.Code) })
	}
}

// ProcessName names this process for operators, by host and process id.
func ProcessName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// uniqueName returns a name that no other process has. Containers may share a
// host name and process id.
func uniqueName() string { return fmt.Sprintf("%s#%06x", ProcessName(), rand.Uint32N(1<<24)) }

// checkRate returns an error if there is no fresh rate of a coin. Its cause may
// name the operator's addresses and limits, so it is for the log only.
func checkRate(live *rate.Live, coin string) error {
	_, err := live.Rate(coin)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rate.ErrParked):
		return fmt.Errorf("%w: %w", card.Unready("the rate of "+coin+" has moved too far; an operator must accept it"), err)
	}
	return fmt.Errorf("%w: %w", card.Unready("no fresh rate of "+coin), cmp.Or[error](live.Health(), card.ErrNoRate))
}

// ratesLoop fetches rates, and calls fetched after each fetch. After an outage
// the next good rate is there within one interval.
func ratesLoop(live *rate.Live, every time.Duration, fetched func()) loop {
	return loop{name: "rates", every: every, fixedRate: true, tick: func(ctx context.Context) error {
		defer fetched()
		return live.Tick(ctx)
	}}
}
