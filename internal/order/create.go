package order

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// errKeyTaken means that the account has used the idempotency key before.
var errKeyTaken = errors.New("idempotency key is taken")

// Request is a client's request for a card, not validated.
type Request struct {
	USDAmount     string // balance of the card in US dollars, a plain decimal number
	Currency      string // code of the currency that the client pays with
	RefundAddress string // address for refunds; "" for none

	// Client data, stored with the card; see card.Card.
	Reference *string           // nil for none
	Metadata  map[string]string // nil for none
}

// Order is a valid request for a card, as returned by Check.
type Order struct {
	usd       card.USD
	coin      card.Currency
	refundTo  card.Secret
	reference *card.Secret
	metadata  card.Secret
}

// requestHash returns a hash that is equal for equal orders. A field that is not
// set does not change it, so that hashes of earlier releases stay valid. It
// covers only a keyed hash of the refund address: some chains publish their
// addresses, so a plain one could be guessed.
func (s *Service) requestHash(o Order) ([]byte, error) {
	text := fmt.Appendf(nil, "createCard/1\x00%d\x00%s", o.usd, o.coin.Code)
	if o.refundTo != "" {
		digest, err := s.vault.Digest("refund address", []byte(o.refundTo.Reveal()))
		if err != nil {
			return nil, err
		}
		text = fmt.Appendf(text, "\x00refund_address\x00%x", digest)
	}
	text, err := appendClientData(text, o)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

// Check validates a request. It returns either an order, or all errors of the
// request.
func (s *Service) Check(r Request) (o Order, errs []card.FieldError) {
	usd, err := card.ParseUSD(r.USDAmount)
	if err == nil && (usd < card.MinUSD || usd > card.MaxUSD) {
		err = fmt.Errorf("must be between %s and %s", card.MinUSD, card.MaxUSD)
	}
	if err != nil {
		errs = append(errs, card.FieldError{Pointer: "/usd_amount", Detail: err.Error()})
	}
	i := slices.IndexFunc(s.cfg.Currencies, func(c card.Currency) bool { return c.Code == r.Currency })
	if i < 0 {
		detail := "is not a currency of this service; choose one of: " + strings.Join(codes(s.cfg.Currencies), ", ")
		errs = append(errs, card.FieldError{Pointer: "/currency", Detail: detail})
	} else if err := s.checkRefundAddress(r); err != nil {
		errs = append(errs, card.FieldError{Pointer: "/refund_address", Detail: err.Error()})
	}
	if errs = append(errs, checkClientData(r)...); len(errs) > 0 {
		return Order{}, errs
	}
	return Order{
		usd:       usd,
		coin:      s.cfg.Currencies[i],
		refundTo:  card.Secret(r.RefundAddress),
		reference: (*card.Secret)(r.Reference),
		metadata:  metadataText(r.Metadata),
	}, nil
}

// checkRefundAddress returns an error if refunds can't be sent to the address. A
// payment address from memory shows which network the wallet is on.
func (s *Service) checkRefundAddress(r Request) error {
	if r.RefundAddress == "" {
		return nil
	}
	check := s.cfg.CheckAddress[r.Currency]
	if check == nil {
		return errors.New("is not accepted with this currency")
	}
	return check(r.RefundAddress, s.pools[r.Currency].peek())
}

// CreateCard quotes an order and stores a card that awaits its payment. It takes
// one round trip to the store, and more for a replay, for an account whose
// exposure is not cached, or if no address is in memory.
//
// key is an idempotency key, or "". For an equal order with the same key,
// CreateCard returns the card as it was created first, and true. For a different
// order, the error is card.ErrKeyReused.
func (s *Service) CreateCard(ctx context.Context, account uuid.UUID, o Order, key string) (*card.Card, bool, error) {
	if o.usd == 0 {
		return nil, false, errors.New("create card: the order was not checked")
	}
	c, err := s.quoteAndStore(ctx, account, o, key)
	if key == "" || err == nil {
		return c, false, err
	}
	if !mayBeReplay(err) {
		return nil, false, err
	}
	id, lookupErr := s.store.CardOfKey(ctx, account, key)
	if errors.Is(lookupErr, card.ErrNoRow) {
		return nil, false, err
	}
	if lookupErr != nil {
		return nil, false, lookupErr
	}
	c, err = s.replay(ctx, account, id, o)
	return c, err == nil, err
}

// replay returns a card as it was created. The error is card.ErrKeyReused
// unless an order like o created it.
func (s *Service) replay(ctx context.Context, account, id uuid.UUID, o Order) (*card.Card, error) {
	if id == uuid.Nil { // another operation used the key
		return nil, card.ErrKeyReused
	}
	earlier, err := s.store.CardByUUID(ctx, account, id)
	if err != nil {
		return nil, err
	}
	hash, err := s.requestHash(o)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(earlier.RequestHash, hash) {
		return nil, card.ErrKeyReused
	}
	if err := s.openRefundAddress(ctx, earlier); err != nil {
		return nil, err
	}
	s.readMetadata(ctx, earlier)
	if err := s.store.AwaitReplication(ctx); err != nil {
		return nil, err
	}
	return earlier.AsCreated(), nil
}

// mayBeReplay reports whether a replay can fail with err. A replay needs no
// rate, address, quota or stock, so it must succeed without them.
func mayBeReplay(err error) bool {
	for _, e := range []error{
		errKeyTaken, errStaleOffers, card.ErrNoRate, card.ErrNoAddress, card.ErrNoAmount,
		card.ErrAccountFrozen, card.ErrQuotaExceeded, card.ErrInvalidRequest,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// quoteAndStore quotes an order and stores the card. The error is errKeyTaken if
// the account has used the key before.
func (s *Service) quoteAndStore(ctx context.Context, account uuid.UUID, o Order, key string) (c *card.Card, err error) {
	release, err := s.reserve(ctx, account, o.usd)
	if err != nil {
		return nil, err
	}
	defer func() { release(c != nil) }()
	rate, err := s.rates.Rate(o.coin.Code)
	if err != nil {
		return nil, err
	}
	amount, err := o.coin.Price(o.usd, rate)
	if err != nil {
		return nil, card.ErrNoRate.WithCause(err)
	}
	sources, err := s.sources(o.usd)
	if err != nil {
		return nil, err
	}
	if sale := sources[len(sources)-1].sale; sale != nil {
		defer func() { // the card may be stored although the database did not reply, or the request was canceled
			stored := c != nil || errors.Is(err, card.ErrUnavailable) || errors.Is(err, context.Canceled)
			s.sales.end(sale, len(sources) == 1 && stored, s.cfg.Now())
		}()
	}
	for tries := 0; tries < 3 && len(sources) > 0; { // an address may be taken already
		address, err := s.takeAddress(ctx, account, o.coin.Code)
		if err != nil {
			return nil, err
		}
		id := uuid.Must(uuid.NewV7())
		createdAt := card.TimeOf(id)
		quoted := &card.Card{
			UUID: id, AccountID: account, CreatedAt: createdAt, IdempotencyKey: key,
			USD: o.usd, Coin: o.coin, Rate: rate, Amount: amount, Address: address,
			ExpiresAt: createdAt.Add(s.cfg.QuoteTTL), ConfirmationsRequired: o.coin.Confirmations,
			Status: card.AwaitingPayment, State: card.Unpaid, Credit: card.Credit{Due: amount},
			RefundAddress: o.refundTo, Reference: o.reference, Metadata: o.metadata,
		}
		if err := s.seal(quoted, o); err != nil {
			return nil, err
		}
		switch stored, err := s.storeCard(ctx, quoted, sources[0]); {
		case errors.Is(err, card.ErrOutOfStock): // another order has just taken the last item
			sources = sources[1:]
		case err != nil:
			return nil, err
		case stored:
			return quoted, nil
		default:
			tries++
		}
	}
	if len(sources) == 0 {
		return nil, s.noAmount(o.usd)
	}
	return nil, card.ErrNoAddress
}

// seal encrypts a new card's refund address, and sets its request hash if it has
// an idempotency key.
func (s *Service) seal(c *card.Card, o Order) (err error) {
	if c.RefundAddress != "" {
		c.SealedRefundAddress, err = s.vault.Seal(c.UUID, c.AccountID, card.RefundAddressField, c.RefundAddress)
		if err != nil {
			return err
		}
	}
	if c.IdempotencyKey != "" {
		c.RequestHash, err = s.requestHash(o)
	}
	return err
}

// storeCard inserts a card. It returns false if the address is taken. The error
// is errKeyTaken if the idempotency key is taken, card.ErrOutOfStock if there is
// no item to reserve, and card.ErrQuotaExceeded if the account's open orders
// would exceed its quota.
func (s *Service) storeCard(ctx context.Context, c *card.Card, from source) (bool, error) {
	returnAddress := func() { s.pools[c.Coin.Code].add(c.AccountID, c.Address) }
	inserted, err := s.insert(ctx, c, from)
	if errors.Is(err, card.ErrOwnAddress) {
		returnAddress()
		return false, card.ErrInvalidRequest.WithFields(card.FieldError{
			Pointer: "/refund_address",
			Detail:  "is an address of this service, and must be one of its customer",
		})
	}
	outOfStock := errors.Is(err, card.ErrOutOfStock)
	if inserted || err != nil && !outOfStock {
		return inserted, err // after an error the address may be in use: keep it out of the pool
	}
	// The store does not report why it rejected a card. It may even have stored
	// it: if the first reply was lost, the driver ran the statement twice.
	_, err = s.store.CardByUUID(ctx, c.AccountID, c.UUID)
	if err == nil {
		err = s.store.AwaitReplication(ctx)
	}
	if !errors.Is(err, card.ErrNoRow) {
		return err == nil, err
	}
	err = s.checkKey(ctx, c.AccountID, c.IdempotencyKey)
	switch {
	case err != nil:
	case outOfStock:
		err = card.ErrOutOfStock
	case s.cfg.MaxOpenUSD > 0:
		err = s.recheck(ctx, c.AccountID, c.USD)
	}
	for _, known := range []error{errKeyTaken, card.ErrOutOfStock, card.ErrQuotaExceeded} {
		if errors.Is(err, known) { // otherwise the address may be the reason
			returnAddress()
		}
	}
	return false, err
}

// checkKey returns errKeyTaken if the account has used an idempotency key.
func (s *Service) checkKey(ctx context.Context, account uuid.UUID, key string) error {
	if key == "" {
		return nil
	}
	_, err := s.store.CardOfKey(ctx, account, key)
	if errors.Is(err, card.ErrNoRow) {
		return nil
	}
	if err == nil {
		return errKeyTaken
	}
	return err
}

// insert inserts a card, and reserves an item of the source's stock if it has
// one.
func (s *Service) insert(ctx context.Context, c *card.Card, from source) (bool, error) {
	if from.supplier != "" {
		return s.store.InsertCardReserving(ctx, c, s.cfg.MaxOpenUSD, from.supplier, from.offer.Life)
	}
	return s.store.InsertCard(ctx, c, s.cfg.MaxOpenUSD)
}
