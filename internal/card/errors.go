package card

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies an Error. The zero Kind is Internal, so that an unknown error
// can never blame the client.
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

// Error is a failure that clients may see: a stable code and a message with the
// remedy. It contains no internal text; the cause, if any, is for the log.
type Error struct {
	Kind       Kind
	Code       string
	Title      string
	Message    string
	Fields     []FieldError  // with Invalid: every invalid part
	RetryAfter time.Duration // with Unavailable and LimitReached
	Quota      *Quota        // with LimitReached
	Scope      string        // with ErrScope: the missing scope
	Cause      error         // for the log only
}

// Quota is a limit that a request exceeded.
type Quota struct {
	Name  string
	Limit int64
	Left  int64
}

// FieldError is an invalid part of a request.
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

// Is reports whether target is the same public failure, regardless of message
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

// WithQuota returns a copy of e with the exceeded quota.
func (e *Error) WithQuota(q Quota) *Error {
	c := *e
	c.Quota = &q
	return &c
}

// WithScope returns a copy of e for a token that lacks the scope.
func (e *Error) WithScope(scope string) *Error {
	c := *e
	c.Scope = scope
	c.Message = fmt.Sprintf(
		"This operation needs the scope %q, which your token does not have. Use a token that has it, or ask the operator for one.", scope)
	return &c
}

// WithFields returns a copy of e that lists every invalid part.
func (e *Error) WithFields(fields ...FieldError) *Error {
	c := *e
	c.Fields = fields
	return &c
}

// The failures that clients can see, with the codes of the published contract.
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
		Message: "This path does not exist."}
	ErrMethodNotAllowed = &Error{Kind: MethodNotAllowed, Code: "method_not_allowed", Title: "Method not allowed",
		Message: `This path does not support the method. The "Allow" header lists the supported methods.`}
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
		Message: "Your account has 16 webhooks, which is the maximum. Delete one, or change its URL."}
	ErrWebhookDisabled = &Error{Kind: Invalid, Code: "webhook_disabled", Title: "Webhook disabled",
		Message: `The webhook is disabled, so nothing can be sent to it. Enable it first.`}
	ErrNoAmount = &Error{Kind: Invalid, Code: "amount_unavailable", Title: "Amount unavailable",
		Message: "No card of this amount is available right now."}
	ErrHasPayments = &Error{Kind: Conflict, Code: "card_has_payments", Title: "Card has payments",
		Message: "Money has arrived for this card, so it can't be canceled."}
	ErrAccountFrozen = &Error{Kind: Forbidden, Code: "account_frozen", Title: "Account frozen",
		Message: "The payment of one of your issued cards has left its blockchain. " +
			"Your account can't create cards until the operator has resolved this."}
	ErrQuotaExceeded = &Error{Kind: LimitReached, Code: "quota_exceeded", Title: "Quota exceeded",
		Message:    "Too many of your cards wait for their payment. Pay some of them, or try again when they have expired.",
		RetryAfter: time.Minute}
	ErrRateLimited = &Error{Kind: LimitReached, Code: "rate_limited", Title: "Too many requests",
		Message: "Too many requests. Try again in a moment.", RetryAfter: time.Second}
	ErrNoRate = &Error{Kind: Unavailable, Code: "rate_unavailable", Title: "No exchange rate",
		Message:    "There is no fresh exchange rate for this currency. Try again in a few seconds.",
		RetryAfter: 10 * time.Second}
	ErrNoAddress = &Error{Kind: Unavailable, Code: "address_unavailable", Title: "No payment address",
		Message:    "No payment address is available right now. Try again in a few seconds.",
		RetryAfter: 5 * time.Second}
	ErrUnavailable = &Error{Kind: Unavailable, Code: "unavailable", Title: "Service unavailable",
		Message:    "A dependency of the service does not respond. Try again in a few seconds.",
		RetryAfter: 5 * time.Second}
)

// PublicErrors returns every failure that clients can see. A test compares
// their codes with the contract.
func PublicErrors() []*Error {
	return []*Error{
		ErrInternal, ErrMalformedJSON, ErrUnauthorized, ErrScope, ErrNotFound, ErrMethodNotAllowed, ErrRequestTimeout,
		ErrBodyTooLarge,
		ErrUnsupportedMedia, ErrInvalidRequest, ErrKeyReused, ErrTooManyWebhooks, ErrWebhookDisabled, ErrNoAmount,
		ErrHasPayments, ErrAccountFrozen, ErrQuotaExceeded, ErrRateLimited, ErrNoRate, ErrNoAddress, ErrUnavailable,
	}
}

// TooMuchError rejects a payment that would bring an address more coins than
// exist.
type TooMuchError struct{ Most Amount } // that can still be paid

func (e *TooMuchError) Error() string { return fmt.Sprintf("at most %d more can be paid", e.Most) }

// Unready is a reason why the service cannot work now, in public words.
type Unready string

func (u Unready) Error() string { return string(u) }

// Wrap returns err with u as its reason and with an unchanged text; nil if err
// is nil.
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
	// ErrFenced means that another process has the lease: stop without changes.
	ErrFenced = errors.New("lease lost to another process")
	// ErrWalletShared means that another database uses the wallet.
	ErrWalletShared = errors.New("another database uses the wallet")
	// ErrOwnAddress means that a refund address is one of the service's own.
	ErrOwnAddress = errors.New("the refund address is one of the service's own")
	// ErrOutOfStock means that the stock has no card of an amount.
	ErrOutOfStock = errors.New("out of stock")
	// ErrStockHeld means that cards in stock may have been given out before the
	// database went back in time.
	ErrStockHeld = errors.New("the stock is held because the database went back in time: cardmint stock release")
	// ErrNoRow means that the store has no such row. An actor decides whether
	// that is a public ErrNotFound.
	ErrNoRow = errors.New("there is no such row")
	// ErrDuplicate means that the key of a row is taken.
	ErrDuplicate = errors.New("duplicate")
	// ErrCorrupt means that a row cannot be decoded: it was changed manually,
	// or written by a newer version.
	ErrCorrupt = errors.New("its row can't be decoded")
	// ErrWrongKeys means that the database was first used with another key
	// file.
	ErrWrongKeys = errors.New("the key file is not the one that this database was first used with")
	// ErrMissingKey means that the key file lacks a key which encrypts data of
	// the database.
	ErrMissingKey = errors.New("the key file lacks a key that this database is encrypted with")
	// ErrRetiredKey means that the primary key of the key file was retired.
	ErrRetiredKey = errors.New("the key file encrypts with a key that was retired")
	// ErrWrongChain means that the stored data belongs to another node or
	// wallet.
	ErrWrongChain = errors.New("not the chain or wallet this database belongs to")
	// ErrChainNotReady means that a chain cannot be trusted at the moment: it
	// is syncing or stale, or node and wallet disagree.
	ErrChainNotReady = errors.New("chain is not ready")
	// ErrWalletLost means that a wallet lost data: addresses that it made,
	// transfers that are still in the chain, or their amounts. It is a case of
	// ErrChainNotReady.
	ErrWalletLost = fmt.Errorf("%w: the wallet lost data", ErrChainNotReady)
	// ErrWrongAnswer means that a response of node or wallet is incomplete or
	// cannot be right. It must not decide anything. It is a case of
	// ErrChainNotReady.
	ErrWrongAnswer = fmt.Errorf("%w: an answer cannot be right", ErrChainNotReady)
	// ErrImpossible means that an address or a card received more coins than
	// exist. It is a case of ErrChainNotReady.
	ErrImpossible = fmt.Errorf("%w: an address received more coins than exist", ErrChainNotReady)
)
