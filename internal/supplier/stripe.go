package supplier

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v85"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

// Metadata of a card. It identifies the card's order once Stripe has forgotten
// the key.
const (
	stripeKey     = "cardmint_key"       // of the request
	stripeUSD     = "cardmint_usd_cents" // of the request
	stripeAttempt = "cardmint_attempt"   // earlier declines of the request
)

const (
	// stripeRetention is an hour less than Stripe's key retention of 24 hours,
	// because the database's clock may be adjusted.
	stripeRetention = 23 * time.Hour
	stripeSkew      = time.Hour // how far the clock of an order may be ahead of Stripe's
	stripePage      = 100       // cards on a page: Stripe's maximum
	stripePages     = 50        // that a search reads
)

// Stripe issues virtual cards with Stripe Issuing. A card belongs to the
// operator's cardholder, and its value is an all-time spending limit. Stripe has
// no state. After a crash a card is found by its metadata, so that no order gets
// a second one.
type Stripe struct {
	cfg     StripeConfig
	page    *url.URL
	backend stripe.Backend
}

var _ issue.Supplier = (*Stripe)(nil)

// NewStripe returns a supplier. It sends no request.
func NewStripe(cfg StripeConfig) (*Stripe, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("stripe: %w", err)
	}
	page, err := url.Parse(cfg.Page)
	if err != nil {
		return nil, errors.New("stripe: the page is not a web address") // Validate has checked this
	}
	return &Stripe{cfg: cfg, page: page, backend: newStripeBackend(cfg.URL)}, nil
}

// Name implements issue.Supplier.
func (s *Stripe) Name() string { return s.cfg.Name }

// KeyRetention implements issue.Supplier.
func (s *Stripe) KeyRetention() time.Duration { return stripeRetention }

// Live reports whether cards are real, by the kind of the key.
func (s *Stripe) Live() bool { return strings.HasPrefix(s.cfg.Key.Reveal(), "rk_live_") }

// Submit implements issue.Supplier. If an order is so old that Stripe may have
// forgotten its key, Submit searches for the card first: a restored database may
// not know that the card was requested.
func (s *Stripe) Submit(ctx context.Context, r issue.Request) (issue.Answer, error) {
	if ordered, known := orderedAt(r.Key); !known || s.cfg.Now().Sub(ordered) >= stripeRetention {
		if found, err := s.Lookup(ctx, r); err != nil || found.Outcome != issue.Unknown {
			return found, err
		}
	}
	created := &stripe.IssuingCard{}
	err := s.call(ctx, http.MethodPost, stripeCards, s.order(r), created)
	if r, is := rejected(err); is {
		if declined, temporary := r.declines(); declined {
			return issue.Answer{Outcome: issue.Declined, Reason: "Stripe declined" + r.words(), Temporary: temporary}, nil
		}
		return issue.Answer{}, &issue.BusyError{Cause: "Stripe refuses requests: " + r.Error()}
	}
	if err != nil {
		return issue.Answer{}, fmt.Errorf("stripe: create a card: %w", plainStripe(ctx, err))
	}
	if created.Object != "issuing.card" || !stripeCard.MatchString(created.ID) {
		return issue.Answer{}, errors.New("stripe: create a card: the answer is not a card")
	}
	// The answer has neither number nor code. It may also be a replay as old as
	// the key, so only the card itself shows the current state.
	c, err := s.retrieve(ctx, created.ID, "number", "cvc")
	if err != nil { // the card is there, and its id must not be lost
		return issue.Answer{Outcome: issue.Pending, Reference: created.ID}, nil
	}
	return s.judge(r, c), nil
}

// Lookup implements issue.Supplier.
func (s *Stripe) Lookup(ctx context.Context, r issue.Request) (issue.Answer, error) {
	c, err := s.find(ctx, r, "number", "cvc")
	if c == nil || err != nil {
		return issue.Answer{}, err
	}
	return s.judge(r, c), nil
}

// Cancel closes a card permanently. Declined means that it is closed, perhaps by
// an earlier call; Unknown means that Stripe has no such card. After an error it
// may be closed or not: repeat the call.
func (s *Stripe) Cancel(ctx context.Context, r issue.Request) (issue.Answer, error) {
	c, err := s.find(ctx, r)
	if c == nil || err != nil {
		return issue.Answer{}, err
	}
	if c.Metadata[stripeKey] != r.Key {
		return issue.Answer{}, errors.New("stripe: cancel: " + othersCard)
	}
	if c.Status != stripe.IssuingCardStatusCanceled {
		params := &stripe.IssuingCardUpdateParams{Status: stripe.String(string(stripe.IssuingCardStatusCanceled))}
		now := &stripe.IssuingCard{}
		if err := s.call(ctx, http.MethodPost, stripeCards+"/"+url.PathEscape(c.ID), params, now); err != nil {
			return issue.Answer{}, fmt.Errorf("stripe: cancel: %w", plainStripe(ctx, err))
		}
		if now.Status != stripe.IssuingCardStatusCanceled {
			return issue.Answer{}, errors.New("stripe: cancel: the card is not canceled yet")
		}
	}
	return canceled(c), nil
}

// Offers returns one offer with the Issuing balance in US dollars as the total of
// all cards, if the cardholder is active. Stripe does not reserve money for a
// card, so the balance must also cover issued cards that are not used up.
func (s *Stripe) Offers(ctx context.Context) ([]card.Offer, error) {
	holder, balance := &stripe.IssuingCardholder{}, &stripe.Balance{}
	if err := s.call(ctx, http.MethodGet, "/v1/issuing/cardholders/"+url.PathEscape(s.cfg.Cardholder),
		&stripe.IssuingCardholderRetrieveParams{}, holder); err != nil {
		return nil, fmt.Errorf("stripe: cardholder: %w", plainStripe(ctx, err))
	}
	if holder.ID != s.cfg.Cardholder || holder.Status == "" {
		return nil, errors.New("stripe: cardholder: the answer is not a cardholder")
	}
	if holder.Status != stripe.IssuingCardholderStatusActive || holder.Requirements != nil &&
		holder.Requirements.DisabledReason != "" {
		return nil, nil
	}
	if err := s.call(ctx, http.MethodGet, "/v1/balance", &stripe.BalanceRetrieveParams{}, balance); err != nil {
		return nil, fmt.Errorf("stripe: balance: %w", plainStripe(ctx, err))
	}
	if balance.Issuing == nil {
		return nil, errors.New("stripe: balance: the answer has no Issuing balance")
	}
	for _, b := range balance.Issuing.Available {
		if b.Currency == stripe.CurrencyUSD && b.Amount > 0 {
			all := card.USD(b.Amount)
			return []card.Offer{{Min: 1, Max: all, Left: card.Unlimited, Total: all}}, nil
		}
	}
	return nil, nil
}

// order returns the parameters of a card. Stripe rejects a repeated key with other
// parameters. If a release changes them, cards that are being requested during
// the update fail, and an operator must decide.
func (s *Stripe) order(r issue.Request) *stripe.IssuingCardCreateParams {
	attempt := strconv.Itoa(r.Declines)
	params := &stripe.IssuingCardCreateParams{
		Cardholder: stripe.String(s.cfg.Cardholder),
		Currency:   stripe.String(string(stripe.CurrencyUSD)),
		Type:       stripe.String(string(stripe.IssuingCardTypeVirtual)),
		Status:     stripe.String(string(stripe.IssuingCardStatusActive)),
		SpendingControls: &stripe.IssuingCardCreateSpendingControlsParams{
			SpendingLimits: []*stripe.IssuingCardCreateSpendingControlsSpendingLimitParams{{
				Amount:   stripe.Int64(int64(r.USD)),
				Interval: stripe.String(string(stripe.IssuingCardSpendingControlsSpendingLimitIntervalAllTime)),
			}}},
		Metadata: map[string]string{stripeKey: r.Key, stripeUSD: strconv.FormatInt(int64(r.USD), 10), stripeAttempt: attempt},
	}
	params.SetIdempotencyKey("cardmint-" + r.Key + "-" + attempt)
	return params
}

var (
	stripeCard       = regexp.MustCompile(`^ic_[A-Za-z0-9]{1,100}$`)
	stripeCardholder = regexp.MustCompile(`^ich_[A-Za-z0-9]{1,100}$`)
)

// find returns the card of a request with the expanded fields, or nil if Stripe
// certainly has none. Any uncertainty is an error.
func (s *Stripe) find(ctx context.Context, r issue.Request, expand ...string) (*stripe.IssuingCard, error) {
	if stripeCard.MatchString(r.Reference) {
		c, err := s.retrieve(ctx, r.Reference, expand...)
		if err != nil {
			return nil, err
		}
		if c.Metadata[stripeKey] != r.Key || isCardOf(r, c) {
			return c, nil
		}
	}
	id, err := s.search(ctx, r)
	if id == "" || err != nil {
		return nil, err
	}
	return s.retrieve(ctx, id, expand...)
}

// isCardOf reports whether a card belongs to a request. A card that was canceled
// after an earlier attempt does not: another one was requested since.
func isCardOf(r issue.Request, c *stripe.IssuingCard) bool {
	return c.Metadata[stripeKey] == r.Key &&
		(c.Status != stripe.IssuingCardStatusCanceled || c.Metadata[stripeAttempt] == strconv.Itoa(r.Declines))
}

// search returns the id of a request's card, or "". Stripe can't search cards by
// metadata, so search reads all cards that are not older than the order. Stripe
// lists the newest first, so a new card can't push another one from an unread
// page to a read one.
func (s *Stripe) search(ctx context.Context, r issue.Request) (string, error) {
	query := url.Values{"cardholder": {s.cfg.Cardholder}, "limit": {strconv.Itoa(stripePage)}}
	if ordered, known := orderedAt(r.Key); known {
		query.Set("created[gte]", strconv.FormatInt(ordered.Add(-stripeSkew).Unix(), 10))
	}
	for range stripePages {
		// The list of stripe-go treats an answer without has_more as the end,
		// and panics if a card is null.
		var list struct {
			stripe.APIResource
			Object  string                `json:"object"`
			Data    []*stripe.IssuingCard `json:"data"`
			HasMore *bool                 `json:"has_more"`
		}
		err := s.backend.CallRaw(http.MethodGet, stripeCards, s.cfg.Key.Reveal(), []byte(query.Encode()),
			&stripe.Params{Context: ctx}, &list)
		switch {
		case err != nil:
			return "", fmt.Errorf("stripe: list cards: %w", plainStripe(ctx, err))
		case list.Object != "list" || list.HasMore == nil:
			return "", errors.New("stripe: list cards: the answer is not a list")
		}
		for _, c := range list.Data {
			if c == nil || c.Object != "issuing.card" || !stripeCard.MatchString(c.ID) {
				return "", errors.New("stripe: list cards: the list contains other objects than cards")
			}
			if isCardOf(r, c) {
				return c.ID, nil
			}
			query.Set("starting_after", c.ID)
		}
		switch {
		case !*list.HasMore:
			return "", nil
		case len(list.Data) == 0:
			return "", errors.New("stripe: list cards: the list does not continue")
		}
	}
	return "", fmt.Errorf("stripe: list cards: more than %d were created since the order", stripePage*stripePages)
}

// retrieve returns a card that must exist.
func (s *Stripe) retrieve(ctx context.Context, id string, expand ...string) (*stripe.IssuingCard, error) {
	params := &stripe.IssuingCardRetrieveParams{}
	for _, field := range expand {
		params.AddExpand(field)
	}
	c := &stripe.IssuingCard{}
	if err := s.call(ctx, http.MethodGet, stripeCards+"/"+url.PathEscape(id), params, c); err != nil {
		return nil, fmt.Errorf("stripe: retrieve the card: %w", plainStripe(ctx, err))
	}
	if c.Object != "issuing.card" || c.ID != id {
		return nil, errors.New("stripe: retrieve the card: the answer is another card")
	}
	return c, nil
}

const othersCard = "the card at Stripe belongs to another order"

func canceled(c *stripe.IssuingCard) issue.Answer {
	return issue.Answer{Outcome: issue.Declined, Reference: c.ID, Reason: "the card was canceled at Stripe"}
}

// judge returns the answer that a card means for a request.
func (s *Stripe) judge(r issue.Request, c *stripe.IssuingCard) issue.Answer {
	a := issue.Answer{Outcome: issue.Issued, Reference: c.ID}
	usd, limited := worth(c)
	switch {
	case c.Metadata[stripeKey] != r.Key:
		a.Flaw = othersCard
	case c.Status == stripe.IssuingCardStatusCanceled:
		return canceled(c)
	case c.Status != stripe.IssuingCardStatusActive:
		a.Flaw = "the card is not active at Stripe: activate it there, then retry"
	case c.Type != stripe.IssuingCardTypeVirtual:
		a.Flaw = "the card at Stripe is not virtual"
	case c.Currency != stripe.CurrencyUSD:
		a.Flaw = "the card at Stripe is not in US dollars"
	case !limited:
		a.Flaw = "the card at Stripe has other spending limits than one for all time"
	case c.LatestFraudWarning != nil && c.LatestFraudWarning.Type != "":
		a.Flaw = "Stripe warns that the card's details are known to others"
	case c.Number == "" || c.CVC == "":
		a.Flaw = "Stripe left out the card's number or security code: the API key may not read them"
	default:
		a.USD, a.Credentials = usd, s.credentials(c)
	}
	return a
}

// worth returns a card's spending limit, and false unless it is the only one.
func worth(c *stripe.IssuingCard) (card.USD, bool) {
	if c.SpendingControls == nil || len(c.SpendingControls.SpendingLimits) != 1 {
		return 0, false
	}
	limit := c.SpendingControls.SpendingLimits[0]
	only := limit != nil && limit.Amount > 0 && len(limit.Categories) == 0 &&
		limit.Interval == stripe.IssuingCardSpendingControlsSpendingLimitIntervalAllTime
	if !only {
		return 0, false
	}
	return card.USD(limit.Amount), true
}

func (s *Stripe) credentials(c *stripe.IssuingCard) card.Credentials {
	expires := "" // is a flaw
	if c.ExpMonth >= 1 && c.ExpMonth <= 12 && c.ExpYear >= 2000 && c.ExpYear <= 2099 {
		expires = fmt.Sprintf("%02d/%02d", c.ExpMonth, c.ExpYear%100)
	}
	return card.Credentials{
		CardNumber:     card.Secret(c.Number),
		ExpirationDate: card.Secret(expires),
		SecurityCode:   card.Secret(c.CVC),
		URL:            card.Secret(s.page.JoinPath(c.ID).String()),
		URLPassword:    card.Secret(s.password(c.ID)),
	}
}

// password returns the password of a card's page: the first 16 bytes of
// HMAC-SHA256 of "cardmint stripe page " and the card's id, in lower-case Base32
// without padding. The page computes it from the id at the end of its URL, and
// so needs no list of cards.
func (s *Stripe) password(id string) string {
	h := hmac.New(sha256.New, []byte(s.cfg.PageSecret.Reveal()))
	h.Write([]byte("cardmint stripe page " + id))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:16]))
}

// orderedAt returns the time of an order: its card can't be older. The key is the
// order's UUID, which begins with the time.
func orderedAt(key string) (time.Time, bool) {
	id, err := uuid.Parse(key)
	if err != nil || id.Version() != 7 {
		return time.Time{}, false
	}
	return time.Unix(id.Time().UnixTime()), true
}
