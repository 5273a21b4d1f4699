package card

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what sort of failure an Error is. The zero Kind is Internal, so
// that an unknown error can never reach a client as its own fault.
type Kind int

const (
	Internal Kind = iota
	Malformed
	Unauthorized
	NotFound
	MethodNotAllowed
	Timeout
	TooLarge
	UnsupportedMedia
	Invalid
	Unavailable
	Forbidden
	LimitReached
	Conflict
)

// Error is a failure that a client may see: a stable code and a message that
// says how to mend it. It holds no internal text; the cause, if any, is for the
// log.
type Error struct {
	Kind       Kind
	Code       string
	Title      string
	Message    string
	Fields     []FieldError  // with Invalid: everything that is wrong
	RetryAfter time.Duration // with Unavailable and LimitReached: when to try again
	Quota      *Quota        // with LimitReached
	Scope      string        // with ErrScope: what the token lacks
	Cause      error         // never shown
}

// Quota is a limit that a request ran into.
type Quota struct {
	Name  string
	Limit int64
	Left  int64
}

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Pointer string // JSON pointer into the body, or query/NAME, path/NAME, header/NAME
	Detail  string
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Code + ": " + e.Cause.Error()
	}
	return e.Code + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is the same public failure, whatever its message
// and cause.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// WithCause returns a copy of e with a cause for the log.
func (e *Error) WithCause(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// WithMessage returns a copy of e with another message.
func (e *Error) WithMessage(message string) *Error {
	c := *e
	c.Message = message
	return &c
}

// WithQuota returns a copy of e that says how much of what is allowed.
func (e *Error) WithQuota(q Quota) *Error {
	c := *e
	c.Quota = &q
	return &c
}

// WithScope returns a copy of e that names the scope that the token lacks.
func (e *Error) WithScope(scope string) *Error {
	c := *e
	c.Scope = scope
	c.Message = fmt.Sprintf(
		"This operation needs the scope %q, which your token does not have. Use a token that has it, or ask the operator for one.", scope)
	return &c
}

// WithFields returns a copy of e that names everything that is wrong.
func (e *Error) WithFields(fields ...FieldError) *Error {
	c := *e
	c.Fields = fields
	return &c
}

// The failures a client can see. Their codes are the ones that the published
// contract enumerates.
var (
	ErrInternal = &Error{Kind: Internal, Code: "internal", Title: "Internal error",
		Message: "The service failed. Try again, or ask its operator with this request id."}
	ErrMalformedJSON = &Error{Kind: Malformed, Code: "malformed_json", Title: "Malformed JSON",
		Message: "The body is not valid JSON."}
	ErrUnauthorized = &Error{Kind: Unauthorized, Code: "unauthorized", Title: "Unauthorized",
		Message: `The token is not valid. Send "Authorization: Bearer <API_TOKEN>" with a token of your account.`}
	ErrScope = &Error{Kind: Forbidden, Code: "insufficient_scope", Title: "Insufficient scope",
		Message: "Your token does not have the scope that this operation needs."}
	ErrNotFound = &Error{Kind: NotFound, Code: "not_found", Title: "Not found",
		Message: "There is nothing at this address."}
	ErrMethodNotAllowed = &Error{Kind: MethodNotAllowed, Code: "method_not_allowed", Title: "Method not allowed",
		Message: `This address does not know the method. The "Allow" header lists those it knows.`}
	ErrRequestTimeout = &Error{Kind: Timeout, Code: "request_timeout", Title: "Request timeout",
		Message: "The request's body did not arrive in time. Send it again."}
	ErrBodyTooLarge = &Error{Kind: TooLarge, Code: "body_too_large", Title: "Body too large",
		Message: "The body is longer than 65536 bytes."}
	ErrUnsupportedMedia = &Error{Kind: UnsupportedMedia, Code: "unsupported_media_type", Title: "Unsupported media type",
		Message: `Send the body as JSON, with "Content-Type: application/json" and no Content-Encoding.`}
	ErrInvalidRequest = &Error{Kind: Invalid, Code: "invalid_request", Title: "Invalid request",
		Message: `The request is not valid. See "errors".`}
	ErrKeyReused = &Error{Kind: Invalid, Code: "idempotency_key_reused", Title: "Idempotency key reused",
		Message: "This Idempotency-Key was used for another request. Use a new key for a new request."}
	ErrTooManyWebhooks = &Error{Kind: Invalid, Code: "too_many_webhooks", Title: "Too many webhooks",
		Message: "Your account has 16 webhooks, which is as many as it may have. Delete one, or change its address."}
	ErrWebhookDisabled = &Error{Kind: Invalid, Code: "webhook_disabled", Title: "Webhook disabled",
		Message: `The webhook is disabled, so nothing can be sent to it. Enable it first.`}
	ErrNoAmount = &Error{Kind: Invalid, Code: "amount_unavailable", Title: "Amount unavailable",
		Message: "No card of this amount can be had right now."}
	ErrHasPayments = &Error{Kind: Conflict, Code: "card_has_payments", Title: "Card has payments",
		Message: "Money has arrived for this card, so that it can't be canceled."}
	ErrAccountFrozen = &Error{Kind: Forbidden, Code: "account_frozen", Title: "Account frozen",
		Message: "The payment of a card that was generated has left its blockchain. Until the operator has settled that, your account gets no new cards."}
	ErrQuotaExceeded = &Error{Kind: LimitReached, Code: "quota_exceeded", Title: "Quota exceeded",
		Message:    "Too many of your cards wait for their payment. Pay some of them, or try again when they have expired.",
		RetryAfter: time.Minute}
	ErrRateLimited = &Error{Kind: LimitReached, Code: "rate_limited", Title: "Too many requests",
		Message: "Too many requests. Try again in a moment.", RetryAfter: time.Second}
	ErrNoRate = &Error{Kind: Unavailable, Code: "rate_unavailable", Title: "No exchange rate",
		Message:    "There is no fresh exchange rate for this currency. Try again in a few seconds.",
		RetryAfter: 10 * time.Second}
	ErrNoAddress = &Error{Kind: Unavailable, Code: "address_unavailable", Title: "No payment address",
		Message:    "There is no payment address to hand out right now. Try again in a few seconds.",
		RetryAfter: 5 * time.Second}
	ErrUnavailable = &Error{Kind: Unavailable, Code: "unavailable", Title: "Service unavailable",
		Message:    "A part that the service depends on does not answer. Try again in a few seconds.",
		RetryAfter: 5 * time.Second}
)

// PublicErrors returns every failure a client can see; the contract's codes are
// tested against it.
func PublicErrors() []*Error {
	return []*Error{
		ErrInternal, ErrMalformedJSON, ErrUnauthorized, ErrScope, ErrNotFound, ErrMethodNotAllowed, ErrRequestTimeout,
		ErrBodyTooLarge,
		ErrUnsupportedMedia, ErrInvalidRequest, ErrKeyReused, ErrTooManyWebhooks, ErrWebhookDisabled, ErrNoAmount,
		ErrHasPayments, ErrAccountFrozen, ErrQuotaExceeded, ErrRateLimited, ErrNoRate, ErrNoAddress, ErrUnavailable,
	}
}

// TooMuchError is the refusal of a payment that would bring an address more
// coins than there are.
type TooMuchError struct{ Most Amount } // that can still be paid

func (e *TooMuchError) Error() string { return fmt.Sprintf("at most %d more can be paid", e.Most) }

// Unready says why the service can't work now, in words that may be shown to
// anybody.
type Unready string

func (u Unready) Error() string { return string(u) }

// Wrap returns err with u as its reason. Its text is err's. It returns nil
// if err is nil.
func (u Unready) Wrap(err error) error {
	if err == nil {
		return nil
	}
	return &unreadyError{err, u}
}

type unreadyError struct {
	error
	reason Unready
}

func (e *unreadyError) Unwrap() []error { return []error{e.reason, e.error} }

// Failures inside the service.
var (
	// ErrFenced means that a lease was lost to another process: stop, touch
	// nothing.
	ErrFenced = errors.New("lease lost to another process")
	// ErrWalletShared means that another database uses the wallet.
	ErrWalletShared = errors.New("another database uses the wallet")
	// ErrOwnAddress means that a refund address is one of the service's own.
	ErrOwnAddress = errors.New("the refund address is one of the service's own")
	// ErrOutOfStock means that no card of an amount is left in a stock.
	ErrOutOfStock = errors.New("out of stock")
	// ErrStockHeld means that it is not known whether a card was given
	// something of a stock before the database went back in time.
	ErrStockHeld = errors.New("the stock is held because the database went back in time: cardmint stock release")
	// ErrNoRow means that the store has no such row. Whether that is a public
	// ErrNotFound is for an actor to decide.
	ErrNoRow = errors.New("there is no such row")
	// ErrDuplicate means that a row with this key exists already.
	ErrDuplicate = errors.New("duplicate")
	// ErrCorrupt means that a row can't be decoded: it was changed by hand, or
	// a newer version wrote it.
	ErrCorrupt = errors.New("its row can't be decoded")
	// ErrWrongKeys means that the key file is not the one the database was
	// first used with.
	ErrWrongKeys = errors.New("the key file is not the one that this database was first used with")
	// ErrMissingKey means that the key file lacks a key that the database is
	// encrypted with.
	ErrMissingKey = errors.New("the key file lacks a key that this database is encrypted with")
	// ErrRetiredKey means that the key file encrypts with a key that was
	// retired.
	ErrRetiredKey = errors.New("the key file encrypts with a key that was retired")
	// ErrWrongChain means that a node or wallet is not the one the stored data
	// belongs to.
	ErrWrongChain = errors.New("not the chain or wallet this database belongs to")
	// ErrChainNotReady means that a chain can't be trusted at the moment:
	// syncing, stale, or node and wallet disagree.
	ErrChainNotReady = errors.New("chain is not ready")
	// ErrWalletLost means that a wallet no longer knows what it knew: addresses
	// it made, or transfers that are still in the chain, or what these came to.
	// It is a case of ErrChainNotReady.
	ErrWalletLost = fmt.Errorf("%w: the wallet lost what it knew", ErrChainNotReady)
	// ErrWrongAnswer means that an answer of a node or wallet lacks something,
	// or can't be right. Nothing is concluded from such an answer. It is a case
	// of ErrChainNotReady.
	ErrWrongAnswer = fmt.Errorf("%w: an answer can't be believed", ErrChainNotReady)
	// ErrImpossible means that more came to an address, or toward a card, than
	// all coins there are. It is a case of ErrChainNotReady.
	ErrImpossible = fmt.Errorf("%w: more coins came to one address than there are", ErrChainNotReady)

	errKeyTaken = errors.New("idempotency key has a card")
)
