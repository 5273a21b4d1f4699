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

// errKeyTaken means that the account has already ordered a card with this
// idempotency key.
var errKeyTaken = errors.New("idempotency key is taken")

// Request is what a client asks for, as it was written.
type Request struct {
	USDAmount     string // the balance in US dollars, a plain decimal number
	Currency      string // the code of the currency to pay with
	RefundAddress string // where to give money back; "" for none

	// What the client stores with the card, see card.Card.
	Reference *string           // nil for none
	Metadata  map[string]string // nil for none
}

// Order is a valid request for a card. Check returns it.
type Order struct {
	usd       card.USD
	coin      card.Currency
	refundTo  card.Secret
	reference *card.Secret
	metadata  card.Secret
}

// requestHash returns the same hash for orders that ask for the same. What an order
// leaves out does not change it, so that the hashes of earlier releases stay
// right. Addresses are public on some chains: only a keyed hash of one goes in,
// so that nobody can try them all.
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

// Check validates a request for a card. It returns either the order, or
// everything that is wrong with the request.
func (s *Service) Check(r Request) (o Order, wrong []card.FieldError) {
	usd, err := card.ParseUSD(r.USDAmount)
	if err == nil && (usd < card.MinUSD || usd > card.MaxUSD) {
		err = fmt.Errorf("must be between %s and %s", card.MinUSD, card.MaxUSD)
	}
	if err != nil {
		wrong = append(wrong, card.FieldError{Pointer: "/usd_amount", Detail: err.Error()})
	}
	i := slices.IndexFunc(s.cfg.Currencies, func(c card.Currency) bool { return c.Code == r.Currency })
	if i < 0 {
		wrong = append(wrong,
			card.FieldError{Pointer: "/currency",
				Detail: "is not a currency of this service; choose one of: " + strings.Join(codes(s.cfg.Currencies), ", ")})
	} else if err := s.checkRefundAddress(r); err != nil {
		wrong = append(wrong, card.FieldError{Pointer: "/refund_address", Detail: err.Error()})
	}
	if wrong = append(wrong, checkClientData(r)...); len(wrong) > 0 {
		return Order{}, wrong
	}
	return Order{usd: usd, coin: s.cfg.Currencies[i], refundTo: card.Secret(r.RefundAddress),
		reference: (*card.Secret)(r.Reference), metadata: metadataText(r.Metadata)}, nil
}

// checkRefundAddress returns an error unless money can be given back to the
// address, if there is one. It knows the network of the wallet by the addresses
// that it holds in memory.
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

// CreateCard stores a card that waits for its payment. It costs one round trip
// to the store; a replay costs more.
//
// key is an idempotency key, or "" for none. If it was used for the same order
// before, CreateCard returns the card as it was created then, and true. If it
// was used for another order, the error is card.ErrKeyReused.
func (s *Service) CreateCard(ctx context.Context, account uuid.UUID, o Order, key string) (*card.Card, bool, error) {
	if o.usd == 0 {
		return nil, false, errors.New("create card: the order was not checked")
	}
	c, err := s.quoteAndStore(ctx, account, o, key)
	if key == "" || err == nil {
		return c, false, err
	}
	if !slices.ContainsFunc(
		[]error{errKeyTaken, card.ErrNoRate, card.ErrNoAddress, card.ErrAccountFrozen, card.ErrQuotaExceeded,
			card.ErrNoAmount, card.ErrInvalidRequest, errStaleOffers}, func(e error) bool { return errors.Is(err, e) }) {
		return nil, false, err
	}
	// If this is a replay, it does not matter that there is no rate, address,
	// quota or card.
	earlier, lookup := s.store.CardByIdempotencyKey(ctx, account, key)
	if errors.Is(lookup, card.ErrNoRow) {
		return nil, false, err
	}
	if lookup != nil {
		return nil, false, lookup
	}
	hash, err := s.requestHash(o)
	if err != nil {
		return nil, false, err
	}
	if !bytes.Equal(earlier.RequestHash, hash) {
		return nil, false, card.ErrKeyReused
	}
	if err := s.openRefundAddress(ctx, earlier); err != nil {
		return nil, false, err
	}
	s.readMetadata(ctx, earlier)
	if err := s.store.AwaitReplication(ctx); err != nil {
		return nil, false, err
	}
	return earlier.AsCreated(), true, nil
}

// quoteAndStore quotes an order and stores the card. The error is errKeyTaken if
// the idempotency key is taken.
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
	from, err := s.sources(o.usd)
	if err != nil {
		return nil, err
	}
	if one := from[len(from)-1].sale; one != nil {
		defer func() { // a card may be stored although the database did not answer, or the client has gone
			stored := c != nil || errors.Is(err, card.ErrUnavailable) || errors.Is(err, context.Canceled)
			s.sales.end(one, len(from) == 1 && stored, s.cfg.Now())
		}()
	}
	for tries := 0; tries < 3 && len(from) > 0; { // an address may turn out to be taken
		address, err := s.takeAddress(ctx, account, o.coin.Code)
		if err != nil {
			return nil, err
		}
		id := uuid.Must(uuid.NewV7()) // fails only if the system has no random numbers
		createdAt := card.TimeOf(id)
		quoted := &card.Card{
			UUID: id, AccountID: account, CreatedAt: createdAt, USD: o.usd, Coin: o.coin, Amount: amount, Address: address,
			Rate:      rate,
			ExpiresAt: createdAt.Add(s.cfg.QuoteTTL), ConfirmationsRequired: o.coin.Confirmations, IdempotencyKey: key,
			Status: card.AwaitingPayment, State: card.Unpaid, Credit: card.Credit{Due: amount}, RefundAddress: o.refundTo,
			Reference: o.reference, Metadata: o.metadata,
		}
		if err := s.seal(quoted, o); err != nil {
			return nil, err
		}
		switch stored, err := s.storeCard(ctx, quoted, from[0]); {
		case errors.Is(err, card.ErrOutOfStock): // the last one has just gone to another order
			from = from[1:]
		case err != nil:
			return nil, err
		case stored:
			return quoted, nil
		default:
			tries++
		}
	}
	if len(from) == 0 {
		return nil, s.noAmount(o.usd)
	}
	return nil, card.ErrNoAddress
}

// seal encrypts what a new card keeps of its customer, and sets the hash of its
// order if it has an idempotency key.
func (s *Service) seal(c *card.Card, o Order) (err error) {
	if c.RefundAddress != "" {
		if c.SealedRefundAddress, err = s.vault.Seal(c.UUID, c.AccountID, card.RefundAddressField,
			c.RefundAddress); err != nil {
			return err
		}
	}
	if c.IdempotencyKey != "" {
		c.RequestHash, err = s.requestHash(o)
	}
	return err
}

// storeCard stores a card. It returns false if the card's address is taken. The
// error is errKeyTaken if its idempotency key is, card.ErrOutOfStock if there
// is nothing to reserve, and card.ErrQuotaExceeded if the account would have
// too much open.
func (s *Service) storeCard(ctx context.Context, c *card.Card, from source) (bool, error) {
	inserted, err := s.insert(ctx, c, from)
	if errors.Is(err, card.ErrOwnAddress) {
		s.pools[c.Coin.Code].add(c.AccountID, c.Address)
		return false,
			card.ErrInvalidRequest.WithFields(
				card.FieldError{Pointer: "/refund_address",
					Detail: "is an address of this service, and must be one of its customer"})
	}
	gone := errors.Is(err, card.ErrOutOfStock)
	if inserted || err != nil && !gone {
		return inserted, err // after an error the address may be in use, so it does not return to the pool
	}
	// Either the statement ran twice because the first reply was lost, or the
	// key or the address is taken, or too much is open, or the stock is empty.
	_, err = s.store.CardByUUID(ctx, c.AccountID, c.UUID)
	if err == nil {
		err = s.store.AwaitReplication(ctx)
	}
	if !errors.Is(err, card.ErrNoRow) {
		return err == nil, err
	}
	if c.IdempotencyKey != "" {
		_, err = s.store.CardByIdempotencyKey(ctx, c.AccountID, c.IdempotencyKey)
		if err == nil {
			s.pools[c.Coin.Code].add(c.AccountID, c.Address)
			return false, errKeyTaken
		}
		if !errors.Is(err, card.ErrNoRow) {
			return false, err
		}
		used, err := s.store.KeyUsed(ctx, c.AccountID, c.IdempotencyKey)
		if err != nil {
			return false, err // it may be the address that is taken
		}
		if used {
			s.pools[c.Coin.Code].add(c.AccountID, c.Address)
			return false, card.ErrKeyReused
		}
	}
	if gone {
		s.pools[c.Coin.Code].add(c.AccountID, c.Address)
		return false, card.ErrOutOfStock
	}
	if s.cfg.MaxOpenUSD == 0 {
		return false, nil
	}
	err = s.recheck(ctx, c.AccountID, c.USD)
	if errors.Is(err, card.ErrQuotaExceeded) {
		s.pools[c.Coin.Code].add(c.AccountID, c.Address)
	}
	return false, err
}

func (s *Service) insert(ctx context.Context, c *card.Card, from source) (bool, error) {
	if from.supplier != "" {
		return s.store.InsertCardReserving(ctx, c, s.cfg.MaxOpenUSD, from.supplier, from.offer.Life)
	}
	return s.store.InsertCard(ctx, c, s.cfg.MaxOpenUSD)
}
