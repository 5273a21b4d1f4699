package reference

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/supplier"
)

var _ StrictServerInterface = (*Server)(nil)

var (
	errMalformedKey = &fault{http.StatusBadRequest, ProblemCodeMalformed,
		"The key must be 1 to 64 letters, digits, hyphens, underscores and points."}
	errMalformed = &fault{http.StatusBadRequest, ProblemCodeMalformed,
		"usd_amount must be a decimal number, currency USD, and valid_until a month as YYYY-MM."}
	errWrongMode = &fault{http.StatusForbidden, ProblemCodeWrongMode,
		"This supplier's cards are not real: it takes requests of test mode only."}
	errConflict = &fault{http.StatusConflict, ProblemCodeKeyConflict, "The key was sent before with another amount."}
)

var (
	keys   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	months = regexp.MustCompile(`^[0-9]{4}-(0[1-9]|1[0-2])$`)
)

// RequestCard implements requestCard.
func (s *Server) RequestCard(gc context.Context, in RequestCardRequestObject) (RequestCardResponseObject, error) {
	if !keys.MatchString(in.Key) {
		return nil, errMalformedKey
	}
	usd, err := card.ParseUSD(in.Body.USDAmount)
	if err != nil || in.Body.Currency != CurrencyUSD || in.Body.ValidUntil != nil &&
		!months.MatchString(*in.Body.ValidUntil) {
		return nil, errMalformed
	}
	if in.Body.Mode != ModeTest {
		return nil, errWrongMode
	}
	var answer Answer
	err = s.write(requestContext(gc), func(b book) error {
		r, err := b.find(in.Key, s.cfg.ForgetAfter)
		if errors.Is(err, errUnknownKey) {
			r = request{key: in.Key, usd: usd, askedAt: b.now}
			if err = b.enter(Asked, r, ""); err == nil {
				r, err = s.decide(b, r)
			}
		} else if err == nil {
			err = b.enter(Asked, request{key: in.Key, usd: usd}, "again")
		}
		switch {
		case err != nil:
			return err
		case r.usd != usd && r.usd != 0:
			return errConflict
		}
		answer, err = s.answer(b, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.rules.draw(Ambiguous) {
		panic(http.ErrAbortHandler) // net/http then cuts the connection
	}
	return RequestCard200JSONResponse{AnswerJSONResponse(answer)}, nil
}

// GetCard implements getCard.
func (s *Server) GetCard(gc context.Context, in GetCardRequestObject) (GetCardResponseObject, error) {
	if !keys.MatchString(in.Key) {
		return nil, errMalformedKey
	}
	var answer Answer
	unknown := false
	err := s.write(requestContext(gc), func(b book) error {
		r, err := b.find(in.Key, s.cfg.ForgetAfter)
		if unknown = errors.Is(err, errUnknownKey); unknown {
			return b.enter(LookedUp, request{key: in.Key}, "unknown")
		}
		if err == nil {
			err = b.enter(LookedUp, r, string(r.state))
		}
		if err == nil {
			answer, err = s.answer(b, r)
		}
		return err
	})
	if err == nil && unknown {
		err = errUnknownKey
	}
	return GetCard200JSONResponse{AnswerJSONResponse(answer)}, err
}

// CancelCard implements cancelCard. It does not cancel issued cards.
func (s *Server) CancelCard(gc context.Context, in CancelCardRequestObject) (CancelCardResponseObject, error) {
	if !keys.MatchString(in.Key) {
		return nil, errMalformedKey
	}
	var answer Answer
	err := s.write(requestContext(gc), func(b book) error {
		r, err := b.find(in.Key, s.cfg.ForgetAfter)
		if errors.Is(err, errUnknownKey) {
			r, err = request{key: in.Key, askedAt: b.now, state: AnswerStatusPending}, nil
		}
		if err == nil && r.state == AnswerStatusPending {
			r.state, r.reason, r.callsLeft = AnswerStatusDeclined, DeclineReasonCanceled, 0
			err = b.save(r)
		}
		if err == nil {
			err = b.enter(Cancel, r, string(r.state))
		}
		if err == nil {
			answer, err = s.answer(b, r)
		}
		return err
	})
	return CancelCard200JSONResponse{AnswerJSONResponse(answer)}, err
}

// ListOffers implements listOffers.
func (s *Server) ListOffers(gc context.Context, _ ListOffersRequestObject) (ListOffersResponseObject, error) {
	list := Offers{Offers: []AmountRange{}, Mode: new(ModeTest)}
	if s.cfg.ForgetAfter > 0 {
		list.KeyRetentionSeconds = new(max(1, int64(s.cfg.ForgetAfter/time.Second)))
	}
	err := s.write(requestContext(gc), func(b book) error {
		for _, o := range s.cfg.Offers {
			left, err := b.left(o)
			if err != nil {
				return err
			}
			offer := AmountRange{MinUSD: o.Min.String(), MaxUSD: o.Max.String()}
			if left != card.Unlimited {
				offer.Left = new(left)
			}
			list.Offers = append(list.Offers, offer)
		}
		return nil
	})
	return ListOffers200JSONResponse(list), err
}

// requestContext returns the context of the request. Drivers must not keep a
// gin.Context.
func requestContext(ctx context.Context) context.Context {
	if c, ours := ctx.(*gin.Context); ours {
		return c.Request.Context()
	}
	return ctx
}

// left returns how many cards of an offer are left.
func (b book) left(o card.Offer) (int64, error) {
	if o.Left == card.Unlimited {
		return o.Left, nil
	}
	made, err := b.count("usd BETWEEN ? AND ?", o.Min, o.Max)
	return max(0, o.Left-int64(made)), err
}

// decide issues, delays or declines the card of a new request, and stores it.
func (s *Server) decide(b book, r request) (request, error) {
	var err error
	if r.serial, err = b.count("key = ?", r.key); err != nil {
		return r, err
	}
	if r.reason, r.temporary, err = s.refusal(b, r.usd); err != nil {
		return r, err
	}
	switch {
	case r.reason != "":
		r.state = AnswerStatusDeclined
		return r, errors.Join(b.save(r), b.enter(Declined, r, string(r.reason)))
	case s.rules.draw(Pending):
		r.state, r.dueAt = AnswerStatusPending, b.now.Add(s.cfg.PendingFor)
		if s.cfg.CallbackURL != "" {
			r.callsLeft = callbackTries
		}
		return r, b.save(r)
	case s.rules.draw(DuplicateNumber):
		number, _, err := b.latest(r.key)
		if err != nil {
			return r, err
		}
		return b.make(r, number)
	}
	return b.make(r, "")
}

// refusal returns why cards of an amount are unavailable, or "".
func (s *Server) refusal(b book, usd card.USD) (reason DeclineReason, temporary bool, err error) {
	switch {
	case s.rules.draw(Declining):
		return DeclineReasonOther, false, nil
	case s.rules.draw(OutOfStock):
		return DeclineReasonOutOfStock, true, nil
	}
	reason = DeclineReasonAmountNotAvailable
	for _, o := range s.cfg.Offers {
		if o.Left, err = b.left(o); err != nil {
			return "", false, err
		}
		switch {
		case o.Has(usd):
			return "", false, nil
		case o.Min <= usd && usd <= o.Max:
			reason = DeclineReasonOutOfStock
		}
	}
	return reason, reason == DeclineReasonOutOfStock, nil
}

// card returns the card of a request, which never changes.
func (r request) card() card.Credentials {
	key := r.key
	if r.serial > 0 {
		key = fmt.Sprintf("%s#%d", r.key, r.serial)
	}
	c := supplier.SandboxCard(key, r.askedAt)
	if r.number != "" {
		c.CardNumber = card.Secret(r.number)
	}
	return c
}

// answer returns the answer to a request, with the errors that rules draw.
func (s *Server) answer(b book, r request) (Answer, error) {
	a := Answer{Key: r.key, Status: r.state}
	switch r.state {
	case AnswerStatusDeclined:
		a.Reason, a.Temporary = new(r.reason), new(r.temporary)
		return a, nil
	case AnswerStatusPending:
		a.Reference = new(r.reference())
		return a, nil
	}
	if s.rules.draw(WrongKey) {
		_, other, err := b.latest(r.key)
		if err != nil {
			return a, err
		}
		if other == "" {
			other = "another-key"
		}
		r = request{key: other, usd: r.usd, state: r.state, askedAt: r.askedAt}
		a.Key = other
	}
	currency := CurrencyUSD
	if s.rules.draw(WrongAmount) {
		r.usd += 1_00
	}
	if s.rules.draw(WrongCurrency) {
		currency = "EUR"
	}
	c := r.card()
	number, expires := c.CardNumber.Reveal(), c.ExpirationDate.Reveal()
	if s.rules.draw(BadNumber) {
		last := len(number) - 1
		number = number[:last] + string('0'+(number[last]-'0'+1)%10)
	}
	if s.rules.draw(Expired) {
		expires = r.askedAt.UTC().AddDate(-1, 0, 0).Format("01/06")
	}
	a.Reference, a.USDAmount, a.Currency = new(r.reference()), new(r.usd.String()), new(currency)
	a.Credentials = &CardCredentials{CardNumber: number, ExpirationDate: expires, SecurityCode: c.SecurityCode.Reveal(),
		URL: c.URL.Reveal(), URLPassword: c.URLPassword.Reveal()}
	return a, nil
}

// reference returns the server's name for a request.
func (r request) reference() string { return fmt.Sprintf("ref_%.8s_%d", r.key, r.serial+1) }
