package card

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Service is every operation of the product, and every boundary of a transaction. It is safe for concurrent use, and any
// number of replicas may work on the same store.
type Service struct {
	store     Store
	vault     Vault
	rates     Rates
	cfg       Config
	pools     map[string]*addressPool
	standings standings
}

// Config is what an operator decides.
type Config struct {
	Currencies []Currency         // that cards can be paid with, each with the confirmations it needs
	Sandbox    map[string]Sandbox // by currency, where its chain is simulated. Defaults to none.
	Replica    string             // names this process among all; must be unique. Defaults to a random name.
	QuoteTTL   time.Duration      // how long amount and rate are locked. Defaults to 60 minutes.
	PoolSize   int                // free addresses to keep ahead, per currency. Defaults to 1000.
	// MaxOpenUSD is how much an account may have open in cards that nothing was received for yet, approximately: each of those is an
	// option to pay at an old rate. Defaults to no limit.
	MaxOpenUSD USD
	// FreezeReversed refuses new cards to an account as long as a generated card of its lost its money. Defaults to false.
	FreezeReversed bool
	// MaxBlind is for how long cards are still accepted while the watcher of their chain is not well. Defaults to 15 minutes.
	MaxBlind time.Duration
	Now      func() time.Time // Defaults to time.Now.
	// Wake is called when there is work for the watcher, so that it need not wait for its next turn: a payment was simulated, or
	// the addresses run out. Defaults to nothing.
	Wake func()
	// WakeSender is called when there are events to deliver. Defaults to nothing.
	WakeSender func()
}

// MaxConfirmations is the most that may be required: half of the blocks that a watcher reads again in every pass.
const MaxConfirmations = 60

// Validate reports what is wrong, and fills in the defaults.
func (c *Config) Validate() error {
	if len(c.Currencies) == 0 {
		return errors.New("no currency is enabled")
	}
	for _, coin := range c.Currencies {
		if coin.Confirmations < 1 || coin.Confirmations > MaxConfirmations {
			return fmt.Errorf("%s: confirmations must be between 1 and %d", coin.Code, MaxConfirmations)
		}
	}
	if c.Replica == "" {
		c.Replica = uuid.NewString()
	}
	if c.QuoteTTL == 0 {
		c.QuoteTTL = time.Hour
	}
	if c.QuoteTTL < time.Minute {
		return errors.New("quotes must last at least a minute")
	}
	if c.PoolSize == 0 {
		c.PoolSize = 1000
	}
	if c.PoolSize < 1 {
		return errors.New("the address pool must hold at least 1 address")
	}
	if c.MaxOpenUSD < 0 {
		return errors.New("the limit of open cards must not be negative")
	}
	if c.MaxBlind == 0 {
		c.MaxBlind = 15 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Wake == nil {
		c.Wake = func() {}
	}
	if c.WakeSender == nil {
		c.WakeSender = func() {}
	}
	return nil
}

// New returns a service.
func New(store Store, vault Vault, rates Rates, cfg Config) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Service{store: store, vault: vault, rates: rates, cfg: cfg, pools: map[string]*addressPool{}}
	for _, coin := range cfg.Currencies {
		s.pools[coin.Code] = &addressPool{filling: make(chan struct{}, 1)}
	}
	return s, nil
}

// CreateRequest is what a client asks for.
type CreateRequest struct {
	USDAmount      string // a plain decimal number
	Currency       string // code
	IdempotencyKey string // "" for none
}

// order is a request that was found valid.
type order struct {
	usd  USD
	coin Currency
	key  string
}

// hash is the same for requests that mean the same.
func (o order) hash() []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "createCard/1\x00%d\x00%s", o.usd, o.coin.Code))
	return sum[:]
}

// CreateCard stores a card that waits for its payment. It costs one round trip to the store.
// With an idempotency key that was used for the same request it returns the card as it was then, and true.
func (s *Service) CreateCard(ctx context.Context, account uuid.UUID, r CreateRequest) (*Card, bool, error) {
	o, wrong := s.check(r)
	if len(wrong) > 0 {
		return nil, false, ErrInvalidRequest.WithFields(wrong...)
	}
	c, err := s.insertCard(ctx, account, o)
	if o.key == "" || err == nil {
		return c, false, err
	}
	if !slices.ContainsFunc([]error{errKeyTaken, ErrNoRate, ErrNoAddress, ErrAccountFrozen, ErrQuotaExceeded}, func(e error) bool { return errors.Is(err, e) }) {
		return nil, false, err
	}
	// A replay needs neither a rate nor an address, nor anything open.
	earlier, lookup := s.store.CardByIdempotencyKey(ctx, account, o.key)
	if errors.Is(lookup, ErrNotFound) {
		return nil, false, err
	}
	if lookup != nil {
		return nil, false, lookup
	}
	if !bytes.Equal(earlier.RequestHash, o.hash()) {
		return nil, false, ErrKeyReused
	}
	return earlier.AsCreated(), true, nil
}

// CheckCreate returns everything that is wrong with a request.
func (s *Service) CheckCreate(r CreateRequest) []FieldError {
	_, wrong := s.check(r)
	return wrong
}

func (s *Service) check(r CreateRequest) (o order, wrong []FieldError) {
	usd, err := ParseUSD(r.USDAmount)
	if err == nil && (usd < MinUSD || usd > MaxUSD) {
		err = fmt.Errorf("must be between %s and %s", MinUSD, MaxUSD)
	}
	if err != nil {
		wrong = append(wrong, FieldError{"/usd_amount", err.Error()})
	}
	coin, enabled := s.currency(r.Currency)
	if !enabled {
		codes := make([]string, len(s.cfg.Currencies))
		for i, c := range s.cfg.Currencies {
			codes[i] = c.Code
		}
		wrong = append(wrong, FieldError{"/currency", "is not a currency of this service; choose one of: " + strings.Join(codes, ", ")})
	}
	return order{usd: usd, coin: coin, key: r.IdempotencyKey}, wrong
}

func (s *Service) currency(code string) (Currency, bool) {
	i := slices.IndexFunc(s.cfg.Currencies, func(c Currency) bool { return c.Code == code })
	if i < 0 {
		return Currency{}, false
	}
	return s.cfg.Currencies[i], true
}

func (s *Service) insertCard(ctx context.Context, account uuid.UUID, o order) (c *Card, err error) {
	coin := o.coin
	takeBack, err := s.reserve(ctx, account, o.usd)
	if err != nil {
		return nil, err
	}
	defer func() {
		if c == nil {
			takeBack()
		}
	}()
	rate, err := s.rates.Rate(coin.Code)
	if err != nil {
		return nil, err
	}
	amount, err := coin.Price(o.usd, rate)
	if err != nil {
		return nil, ErrNoRate.Because(err)
	}
	for range 3 {
		address, err := s.takeAddress(ctx, coin.Code)
		if err != nil {
			return nil, err
		}
		id, createdAt := newID()
		made := &Card{
			UUID: id, AccountID: account, CreatedAt: createdAt, USD: o.usd, Coin: coin, Amount: amount, Address: address, Rate: rate,
			ExpiresAt: createdAt.Add(s.cfg.QuoteTTL), ConfirmationsRequired: coin.Confirmations, IdempotencyKey: o.key,
			Status: AwaitingPayment, State: Unpaid,
		}
		if o.key != "" {
			made.RequestHash = o.hash()
		}
		inserted, err := s.store.InsertCard(ctx, made)
		if err != nil {
			return nil, err // the address may be in use now, so it is not handed out again
		}
		if inserted {
			return made, nil
		}
		// Either the statement ran twice because its first reply was lost, or the key or the address is taken.
		switch _, err := s.store.CardByUUID(ctx, account, id); {
		case err == nil:
			return made, nil
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
		if o.key != "" {
			_, err := s.store.CardByIdempotencyKey(ctx, account, o.key)
			if err == nil {
				s.pools[coin.Code].add(address)
				return nil, errKeyTaken
			}
			if !errors.Is(err, ErrNotFound) {
				return nil, err
			}
		}
	}
	return nil, ErrNoAddress
}

// newID returns a UUID version 7 and the time it holds, which is in milliseconds.
func newID() (uuid.UUID, time.Time) {
	id := uuid.Must(uuid.NewV7()) // fails only if the system has no random numbers
	return id, TimeOf(id)
}

// GetCard returns a card of the account, with its credentials once it is generated. It costs one round trip to the store.
func (s *Service) GetCard(ctx context.Context, account, id uuid.UUID) (*Card, error) {
	c, err := s.store.CardByUUID(ctx, account, id)
	if errors.Is(err, ErrNotFound) {
		return nil, ErrNotFound.Saying("Your account has no card with this uuid.")
	}
	if err != nil {
		return nil, err
	}
	return c, s.open(c)
}

// open fills in the credentials of a generated card.
func (s *Service) open(c *Card) error {
	if c.Status != Generated {
		return nil
	}
	if c.Sealed == nil {
		return fmt.Errorf("card %s is generated but has no credentials", c.UUID)
	}
	credentials, err := s.vault.OpenCredentials(c.UUID, c.AccountID, *c.Sealed)
	if err != nil {
		return err
	}
	c.Credentials = &credentials
	return nil
}

// listPage is how many cards ListCards holds at once.
const listPage = 500

// ListCards calls f with the cards that match, newest first. Between pages nothing of the store is held, however slow f is, and
// memory does not grow with the number of cards.
func (s *Service) ListCards(ctx context.Context, filter CardFilter, f func(*Card) error) error {
	left := filter.Limit
	for {
		filter.Limit = listPage
		if left > 0 {
			filter.Limit = min(left, listPage)
		}
		page, err := s.store.Cards(ctx, filter)
		if err != nil {
			return err
		}
		for _, c := range page {
			if err := s.open(c); err != nil {
				return err
			}
			if err := f(c); err != nil {
				return err
			}
		}
		left -= len(page)
		if len(page) < filter.Limit || left == 0 {
			return nil
		}
		filter.Before = page[len(page)-1].UUID
	}
}

// CurrencyRate is a currency and its rate, if a fresh one is known.
type CurrencyRate struct {
	Currency
	Rate *Rate
}

// ListCurrencies returns the enabled currencies by code.
func (s *Service) ListCurrencies() ([]CurrencyRate, error) {
	var all []CurrencyRate
	for _, coin := range s.cfg.Currencies {
		rate, err := s.rates.Rate(coin.Code)
		switch {
		case err == nil:
			all = append(all, CurrencyRate{coin, &rate})
		case errors.Is(err, ErrNoRate):
			all = append(all, CurrencyRate{coin, nil})
		default:
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b CurrencyRate) int { return strings.Compare(a.Code, b.Code) })
	return all, nil
}

// SimulatedPayment is what SimulatePayment sends.
type SimulatedPayment struct {
	Amount        *Decimal // in whole coins; nil for what is due
	Confirmations *int     // nil for the number that is required
}

// SimulatePayment pays for a card on the simulated chain, and returns the card as soon as the watcher has seen the payment,
// or as it is after a few seconds. Where the card's chain is real it is ErrNotFound.
func (s *Service) SimulatePayment(ctx context.Context, account, id uuid.UUID, p SimulatedPayment) (*Card, error) {
	if len(s.cfg.Sandbox) == 0 {
		return nil, ErrNotFound.Saying("This service runs no simulated chain: pay with real coins.")
	}
	c, err := s.GetCard(ctx, account, id)
	if err != nil {
		return nil, err
	}
	sandbox, simulated := s.cfg.Sandbox[c.Coin.Code]
	if !simulated {
		return nil, ErrNotFound.Saying("This card's currency has no simulated chain: pay with real coins.")
	}
	amount, confirmations := c.Due(), c.ConfirmationsRequired
	if p.Amount != nil {
		exact, err := p.Amount.Rescale(c.Coin.Decimals)
		if err == nil && exact.Units == 0 {
			err = errors.New("must be more than 0")
		}
		if err != nil {
			return nil, ErrInvalidRequest.WithFields(FieldError{"/amount", err.Error()})
		}
		amount = Amount(exact.Units)
	}
	if p.Confirmations != nil {
		confirmations = *p.Confirmations
	}
	tip, err := sandbox.Pay(ctx, c.Address, amount, confirmations)
	if err != nil {
		return nil, err
	}
	return s.awaitSeen(ctx, c, amount, tip)
}

// awaitSeen reads the card until what was just sent shows.
func (s *Service) awaitSeen(ctx context.Context, before *Card, sent Amount, tip Tip) (*Card, error) {
	s.cfg.Wake()
	giveUp := time.NewTimer(5 * time.Second)
	defer giveUp.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		c, err := s.GetCard(ctx, before.AccountID, before.UUID)
		if err != nil {
			return nil, err
		}
		seen := c.Received >= before.Received+sent && c.TipHeight >= tip.Height
		if beingMade := c.State == Paid && c.Status != Generated; seen && !beingMade {
			return c, nil
		}
		select {
		case <-again.C:
		case <-giveUp.C:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
