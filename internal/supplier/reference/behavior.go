package reference

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Behavior is a deviation from a prompt and honest supplier.
type Behavior string

// The behaviors. The first group concerns every request, the second one only
// cards.
const (
	Slow        Behavior = "slow"         // answers only after Config.Slowness
	RateLimited Behavior = "rate-limited" // answers 429 and does nothing
	Maintenance Behavior = "maintenance"  // answers 503 and does nothing

	Ambiguous       Behavior = "ambiguous"        // executes requestCard, and cuts the connection
	Pending         Behavior = "pending"          // issues the card of a new key after Config.PendingFor
	OutOfStock      Behavior = "out-of-stock"     // declines a new key temporarily
	Declining       Behavior = "declining"        // declines a new key permanently
	DuplicateNumber Behavior = "duplicate-number" // issues the card of a new key with the previous card's number
	WrongAmount     Behavior = "wrong-amount"     // answers with one dollar more
	WrongCurrency   Behavior = "wrong-currency"   // answers with a card in EUR
	WrongKey        Behavior = "wrong-key"        // answers with the card of another key
	BadNumber       Behavior = "bad-number"       // answers with a wrong check digit
	Expired         Behavior = "expired"          // answers with an expired card
)

// Behaviors returns all behaviors.
func Behaviors() []Behavior {
	return []Behavior{Slow, RateLimited, Maintenance, Ambiguous, Pending, OutOfStock, Declining, DuplicateNumber,
		WrongAmount, WrongCurrency,
		WrongKey, BadNumber, Expired}
}

// Rule activates a behavior: for the Next times if that is positive, otherwise
// with a Probability from 0 to 1.
type Rule struct {
	Behavior    Behavior
	Probability float64
	Next        int
}

// ParseRule reads "slow" (always), "slow=0.25" (with that probability) or
// "slow=3x" (the next three times).
func ParseRule(text string) (Rule, error) {
	name, when, given := strings.Cut(text, "=")
	r := Rule{Behavior: Behavior(name), Probability: 1}
	if !slices.Contains(Behaviors(), r.Behavior) {
		return Rule{}, fmt.Errorf("%q is not a behavior", name)
	}
	var err error
	if times, counted := strings.CutSuffix(when, "x"); counted {
		if r.Next, err = strconv.Atoi(times); err != nil || r.Next < 1 {
			return Rule{}, fmt.Errorf("%q: must be how often, such as %s=3x", text, name)
		}
	} else if given {
		if r.Probability, err = strconv.ParseFloat(when, 64); err != nil || !(r.Probability >= 0 && r.Probability <= 1) {
			return Rule{}, fmt.Errorf("%q: must be a probability from 0 to 1, such as %s=0.25", text, name)
		}
	}
	return r, nil
}

// String returns the rule in the format of ParseRule.
func (r Rule) String() string {
	switch {
	case r.Next > 0:
		return fmt.Sprintf("%s=%dx", r.Behavior, r.Next)
	case r.Probability == 1:
		return string(r.Behavior)
	}
	return string(r.Behavior) + "=" + strconv.FormatFloat(r.Probability, 'g', -1, 64)
}

// rules are the active rules. The same seed and the same sequence of requests
// lead to the same draws.
type rules struct {
	mu   sync.Mutex
	all  []Rule
	dice *rand.Rand
}

func (r *rules) set(all []Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.Clone(all)
}

func (r *rules) list() []Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// draw reports whether b is active this time.
func (r *rules) draw(b Behavior) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		rule := &r.all[i]
		switch {
		case rule.Behavior != b:
		case rule.Next > 0:
			if rule.Next--; rule.Next == 0 {
				r.all = slices.Delete(r.all, i, i+1)
			}
			return true
		case rule.Probability == 1 || r.dice.Float64() < rule.Probability:
			return true
		}
	}
	return false
}
