package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/order"
	"github.com/cardmint/cardmint/internal/webhook"
)

// api implements the generated StrictServerInterface, with one file per tag of
// the contract.
type api struct {
	orders    *order.Service
	webhooks  *webhook.Service
	lists     *concurrency
	waits     *concurrency
	gates     *gates
	log       *slog.Logger
	auditLog  *slog.Logger
	heartbeat time.Duration
	tags      *order.Tagger
	etags     string // prefix of entity tags
}

var _ StrictServerInterface = (*api)(nil)

var (
	errNoIdentity = errors.New("handler reached without authentication")
	errNoDeadline = errors.New("handler reached without a deadline")
)

// caller returns the account of the request, and the request's context, which
// is canceled when the client disconnects. Do not pass on a gin.Context: gin
// reuses it for the next request, while a goroutine of a database driver may
// still hold it.
func caller(ctx context.Context) (context.Context, uuid.UUID, error) {
	who, ok := identity(ctx)
	c, ours := ctx.(*gin.Context)
	if !ok || !ours {
		return nil, uuid.Nil, errNoIdentity
	}
	return c.Request.Context(), who.AccountID, nil
}

// CreateCard implements createCard.
func (a *api) CreateCard(gc context.Context, r CreateCardRequestObject) (CreateCardResponseObject, error) {
	ctx, owner, err := caller(gc)
	if err != nil {
		return nil, err
	}
	o, errs := a.orders.Check(orderRequest(*r.Body))
	if len(errs) > 0 {
		return nil, card.ErrInvalidRequest.WithFields(errs...)
	}
	key, err := idempotencyKey(r.Params.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	c, replayed, err := a.orders.CreateCard(ctx, owner, o, key)
	if err != nil {
		return nil, err
	}
	traceCard(gc, c.UUID)
	a.logOrder(ctx, owner, c.UUID, replayed)
	location := "/api/cards/" + c.UUID.String()
	headers := CreateCard201ResponseHeaders{Location: &location}
	if replayed {
		headers.IdempotencyReplayed = ptr("true")
	}
	w := wireCard(c)
	return CreateCard201JSONResponse{Headers: headers, Body: CreatedCard{
		UUID: w.UUID, CreatedAt: w.CreatedAt, Status: w.Status, USDAmount: usdNumber(c.USD), Payment: w.Payment,
		Credentials: w.Credentials, RefundAddress: w.RefundAddress,
		Refund: w.Refund, Reference: w.Reference, Metadata: w.Metadata,
	}}, nil
}

// orderRequest converts the body of createCard. usd_amount is a string or a
// number; both are read exactly.
func orderRequest(body CreateCardRequest) order.Request {
	usd := string(body.USDAmount)
	if strings.HasPrefix(usd, `"`) {
		usd = ""
		_ = json.Unmarshal(body.USDAmount, &usd) // is valid JSON
	}
	return order.Request{
		USDAmount:     usd,
		Currency:      body.Currency,
		RefundAddress: deref(body.RefundAddress, ""),
		Reference:     body.Reference,
		Metadata:      deref(body.Metadata, nil),
	}
}

// idempotencyKey returns the key in the header, or "". It removes the quotes of
// a structured field's string (RFC 8941).
func idempotencyKey(header *string) (string, error) {
	if header == nil {
		return "", nil
	}
	k := *header
	if len(k) >= 2 && k[0] == '"' && k[len(k)-1] == '"' {
		k = k[1 : len(k)-1]
	}
	if k == "" || len(k) > 255 {
		return "", card.ErrInvalidRequest.WithFields(
			card.FieldError{Pointer: "header/Idempotency-Key", Detail: "must have 1 to 255 characters, the quotes not counted"})
	}
	return k, nil
}

// GetCard implements getCard.
func (a *api) GetCard(gc context.Context, r GetCardRequestObject) (GetCardResponseObject, error) {
	ctx, owner, err := caller(gc)
	if err != nil {
		return nil, err
	}
	if known := r.Params.IfNoneMatch; known != nil {
		tag, err := a.tags.TagOfCard(ctx, owner, r.UUID)
		if err != nil {
			return nil, err
		}
		if etag := a.etag(gc, tag); !noneMatch(*known, *etag) {
			return GetCard304Response{Headers: NotModifiedResponseHeaders{ETag: etag}}, nil
		}
	}
	c, err := a.orders.GetCard(ctx, owner, r.UUID)
	if err != nil {
		return nil, err
	}
	return GetCard200JSONResponse{Body: a.auditedCard(gc, "getCard", c),
		Headers: GetCard200ResponseHeaders{ETag: a.etag(gc, a.tags.Tag(c))}}, nil
}

// RevealCard implements revealCard.
func (a *api) RevealCard(gc context.Context, r RevealCardRequestObject) (RevealCardResponseObject, error) {
	ctx, owner, err := caller(gc)
	if err != nil {
		return nil, err
	}
	if _, err := idempotencyKey(r.Params.IdempotencyKey); err != nil {
		return nil, err
	}
	c, err := a.orders.RevealCard(ctx, owner, r.UUID)
	if err != nil {
		return nil, err
	}
	return RevealCard200JSONResponse{Body: a.auditedCard(gc, "revealCard", c)}, nil
}

// CancelCard implements cancelCard.
func (a *api) CancelCard(gc context.Context, r CancelCardRequestObject) (CancelCardResponseObject, error) {
	ctx, owner, err := caller(gc)
	if err != nil {
		return nil, err
	}
	if _, err := idempotencyKey(r.Params.IdempotencyKey); err != nil {
		return nil, err
	}
	c, err := a.orders.CancelCard(ctx, owner, r.UUID)
	if err != nil {
		return nil, err
	}
	a.log.InfoContext(ctx, "card canceled", "card", c.UUID, "account", owner)
	return CancelCard200JSONResponse{Body: a.auditedCard(gc, "cancelCard", c)}, nil
}

// ListCards implements listCards.
func (a *api) ListCards(gc context.Context, r ListCardsRequestObject) (ListCardsResponseObject, error) {
	ctx, owner, err := caller(gc)
	if err != nil {
		return nil, err
	}
	filter := cardFilter(owner, r.Params)
	if errs := a.orders.CheckFilter(filter); len(errs) > 0 {
		return nil, card.ErrInvalidRequest.WithFields(errs...)
	}
	if r.Params.Cursor != nil {
		if filter.Before, err = parseCursor(*r.Params.Cursor); err != nil {
			return nil, err
		}
	}
	open, err := openEndedOf(gc)
	if err != nil {
		return nil, err
	}
	if r.Params.Limit == nil {
		who, _ := identity(gc)
		return cardStream{
			openEnded: open, beginning: ctx,
			begin: func() (func(), error) { return a.lists.acquire(who) },
			each: func(ctx context.Context, f func(*card.Card) error) error {
				d := newDisclosure(gc)
				defer func() { a.audit(gc, "listCards", d) }() // even if the list is aborted
				return a.orders.ListCards(ctx, filter, func(c *card.Card) error {
					if d.show(c) && d.cards == 1 {
						a.auditStarted(gc, "listCards", d) // a process that is killed logs no other line
					}
					return f(c)
				})
			},
		}, nil
	}
	filter.Limit, filter.Tagged = int(*r.Params.Limit)+1, true // one more, to see whether there is a next page
	if known := r.Params.IfNoneMatch; known != nil {
		tag, err := a.tags.TagOfPage(ctx, filter)
		if err != nil {
			return nil, err
		}
		if etag := a.etag(gc, tag); !noneMatch(*known, *etag) {
			return ListCards304Response{Headers: NotModifiedResponseHeaders{ETag: etag}}, nil
		}
	}
	page, err := a.page(ctx, gc, filter)
	if err != nil {
		return nil, err
	}
	return watchedCards{page, open}, nil
}

func (a *api) page(ctx, gc context.Context, filter order.Filter) (ListCardsResponseObject, error) {
	d := newDisclosure(gc)
	limit := filter.Limit - 1
	cards, tagged := make([]Card, 0, limit), make([]*card.Card, 0, limit+1)
	more, long := false, 0
	err := a.orders.ListCards(ctx, filter, func(c *card.Card) error {
		tagged = append(tagged, c)
		if more = len(cards) == limit || long > maxPageMetadata; more {
			return errPageFull
		}
		d.show(c)
		cards = append(cards, wireCard(c))
		long += len(c.Metadata)
		return nil
	})
	if err != nil && !errors.Is(err, errPageFull) {
		return nil, err
	}
	a.audit(gc, "listCards", d)
	page := ListCards200JSONResponse{Body: cards,
		Headers: ListCards200ResponseHeaders{ETag: a.etag(gc, a.tags.Tag(tagged...))}}
	if more {
		query := filterQuery(filter)
		query.Set("limit", strconv.Itoa(limit))
		query.Set("cursor", formatCursor(cards[len(cards)-1].UUID))
		page.Headers.Link = next("/api/cards", query)
	}
	return page, nil
}

// A cursor is the uuid of the last card of a page. It does not contain the
// account: a cursor of another account returns a different part of the caller's
// own list.
func formatCursor(id uuid.UUID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseCursor(text string) (uuid.UUID, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != len(uuid.UUID{}) {
		return uuid.Nil,
			card.ErrInvalidRequest.WithFields(
				card.FieldError{Pointer: "query/cursor",
					Detail: `is not a cursor of this list; follow the "Link" header of the page before`})
	}
	return uuid.UUID(raw), nil
}

// cardStream writes cards as they are read, in constant memory.
type cardStream struct {
	openEnded
	beginning context.Context                // with the deadline for the first byte
	begin     func() (end func(), err error) // returns an error if too many lists are being sent
	each      func(context.Context, func(*card.Card) error) error
}

// VisitListCardsResponse writes the array. The status is sent with the first
// card. An earlier error becomes a problem document. A later error aborts the
// connection (problemWriter), so that the client can't mistake the part for the
// whole.
func (s cardStream) VisitListCardsResponse(w http.ResponseWriter) error {
	end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	ctx, watch := watchToken(s.ctx, w, s.checkToken)
	defer func() { _ = watch.end(nil) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := context.AfterFunc(s.beginning, cancel)
	out := bufio.NewWriterSize(newMinRateWriter(w, watch.extend), listBuffer)
	var one bytes.Buffer
	encoder := json.NewEncoder(&one)
	separator := byte('[')
	start := func() {
		begun()
		_ = watch.extend(writeTimeout)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
	}
	err = s.each(ctx, func(c *card.Card) error {
		if separator == '[' {
			start()
		}
		one.Reset()
		one.WriteByte(separator)
		separator = ','
		if err := encoder.Encode(wireCard(c)); err != nil {
			return err
		}
		_, err := one.WriteTo(out)
		return err
	})
	err = watch.cause(err)
	if late := s.beginning.Err(); err != nil && separator == '[' && errors.Is(late, context.DeadlineExceeded) {
		return card.ErrUnavailable.WithCause(err) // the store reports a canceled context
	}
	if err != nil {
		return err
	}
	if separator == '[' {
		start()
		_, _ = out.WriteString("[")
	}
	_, _ = out.WriteString("]\n")
	return watch.end(out.Flush())
}

// wireRefund returns the refund that is due, and the refund that was made.
func wireRefund(c *card.Card) (due *card.Decimal, done *Refund) {
	if amount := c.RefundDue(); amount > 0 {
		due = ptr(c.Coin.Decimal(amount))
	}
	if c.Refunded > 0 {
		done = &Refund{Amount: c.Coin.Decimal(c.Refunded), At: Time(c.RefundedAt)}
		if c.RefundTxID != "" {
			done.TxID = &c.RefundTxID
		}
	}
	return due, done
}

// wireCard converts a card to the contract's form.
func wireCard(c *card.Card) Card {
	w := Card{
		UUID:      c.UUID,
		CreatedAt: Time(c.CreatedAt),
		Status:    CardStatus(c.Status),
		USDAmount: c.USD,
		Payment: Payment{
			Currency:              c.Coin.Code,
			Amount:                c.Coin.Decimal(c.Amount),
			Address:               c.Address,
			State:                 PaymentState(c.State),
			ExpiresAt:             Time(c.ExpiresAt),
			URI:                   c.PaymentURI(),
			AmountReceived:        c.Coin.Decimal(c.Received),
			AmountDue:             c.Coin.Decimal(c.Credit.Due),
			Confirmations:         c.Confirmations(),
			ConfirmationsRequired: int32(c.ConfirmationsRequired),
			Rate:                  c.Rate.USD,
		},
		Reference: (*string)(c.Reference),
		Metadata:  json.RawMessage(c.Metadata.Reveal()),
	}
	if masked := card.Mask(c.RefundAddress); masked != "" {
		w.RefundAddress = &masked
	}
	w.Payment.RefundDue, w.Refund = wireRefund(c)
	if c.Transfers != nil {
		w.Payment.Transfers = make([]Transfer, len(c.Transfers))
	}
	for i, t := range c.Transfers {
		w.Payment.Transfers[i] = Transfer{TxID: t.TxID, Amount: c.Coin.Decimal(t.Amount),
			Confirmations: t.Confirmations(c.TipHeight), Locked: t.Locked,
			FirstSeenAt: Time(t.FirstSeenAt)}
		if t.Height > 0 {
			w.Payment.Transfers[i].Height = &t.Height
		}
	}
	if c.Omitted > 0 {
		w.Payment.TransfersOmitted = &c.Omitted
	}
	if c.CredentialsPurgedAt != nil {
		w.CredentialsPurgedAt = ptr(Time(*c.CredentialsPurgedAt))
	}
	if made := c.Credentials; made != nil {
		w.Credentials = Credentials{
			CardNumber:     ptr(made.CardNumber.Reveal()),
			ExpirationDate: ptr(made.ExpirationDate.Reveal()),
			SecurityCode:   ptr(made.SecurityCode.Reveal()),
			URL:            ptr(made.URL.Reveal()),
			URLPassword:    ptr(made.URLPassword.Reveal()),
		}
	}
	return w
}

func ptr[T any](v T) *T { return &v }
