package supplier

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
)

const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
	maxFields   = 64 // of a JSON object
	maxOffers   = 100
)

// The texts of errors are fixed: any part of an answer may be a card number.
var (
	errNotJSON   = errors.New("the answer violates the contract: it is not one JSON object, or a field is repeated")
	errMissing   = errors.New("the answer violates the contract: a required field is missing or has another type")
	errOtherKey  = errors.New("the answer is about another key")
	errNoStatus  = errors.New("the answer has a status that is not in the contract")
	errNoReason  = errors.New("the answer declines for a reason that is not in the contract")
	errNoMode    = errors.New("the offers have a mode that is not in the contract")
	errNotOffers = errors.New("the offers violate the contract")
)

// reply is a complete HTTP response.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// object reads one JSON object into v, and returns its fields by name. Each
// required field must exist and not be null. Unlike encoding/json alone, object
// rejects invalid UTF-8, repeated fields and fields that differ only in case:
// parsers disagree about which one counts.
func object(text []byte, v any, required ...string) (map[string]json.RawMessage, error) {
	if !utf8.Valid(text) {
		return nil, errNotJSON
	}
	tokens := json.NewDecoder(bytes.NewReader(text))
	if first, err := tokens.Token(); err != nil || first != json.Delim('{') {
		return nil, errNotJSON
	}
	fields := map[string]json.RawMessage{}
	for tokens.More() {
		token, err := tokens.Token()
		name, is := token.(string)
		if err != nil || !is || len(fields) == maxFields {
			return nil, errNotJSON
		}
		for other := range fields {
			if strings.EqualFold(name, other) {
				return nil, errNotJSON
			}
		}
		var value json.RawMessage
		if err := tokens.Decode(&value); err != nil {
			return nil, errNotJSON
		}
		fields[name] = value
	}
	if _, err := tokens.Token(); err != nil {
		return nil, errNotJSON
	}
	if _, err := tokens.Token(); err != io.EOF {
		return nil, errNotJSON
	}
	for _, name := range required {
		if value, there := fields[name]; !there || string(value) == "null" {
			return nil, errMissing
		}
	}
	if err := json.Unmarshal(text, v); err != nil {
		return nil, errMissing
	}
	return fields, nil
}

// has reports whether the reply has the given status and content type.
func (r reply) has(status int, contentType string) bool {
	media, _, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	return r.status == status && err == nil && media == contentType
}

// fault returns the error of a reply without an answer: *issue.BusyError if the
// supplier did not accept the request. Any other error means that the card may
// exist.
func (r reply) fault() error {
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		// Nine digits can't overflow. The contract allows no date.
		if after := r.header.Get("Retry-After"); len(after) <= 9 {
			if seconds, err := strconv.ParseUint(after, 10, 31); err == nil {
				return &issue.BusyError{After: time.Duration(seconds) * time.Second}
			}
		}
	}
	if r.isProblem(http.StatusForbidden, ProblemCodeWrongMode) {
		return &issue.BusyError{Cause: "the supplier refuses requests of this mode, test or live"}
	}
	if r.status == http.StatusOK {
		return errors.New("HTTP status 200 with a content type that is not in the contract")
	}
	return fmt.Errorf("HTTP status %d", r.status)
}

// isProblem reports whether the reply is a problem of the contract. A reply
// with the same status may come from a proxy that does not know the supplier.
func (r reply) isProblem(status int, code ProblemCode) bool {
	var p Problem
	if !r.has(status, problemType) {
		return false
	}
	_, err := object(r.body, &p, "code")
	return err == nil && p.Code == code
}

// answer reads the answer to the request with a key. After an error the card may
// exist.
func (r reply) answer(key string) (issue.Answer, error) {
	if !r.has(http.StatusOK, jsonType) {
		return issue.Answer{}, r.fault()
	}
	var a Answer
	fields, err := object(r.body, &a, "key", "status")
	if err != nil {
		return issue.Answer{}, err
	}
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			value, there := fields[name]
			return !there || string(value) == "null"
		})
	}
	switch {
	case a.Status == AnswerStatusIssued && !has("reference", "usd_amount", "currency", "credentials"),
		a.Status == AnswerStatusPending && !has("reference"),
		a.Status == AnswerStatusDeclined && !has("reason", "temporary"):
		return issue.Answer{}, errMissing
	case a.Status == AnswerStatusIssued:
		return a.issued(key)
	case a.Key != key:
		return issue.Answer{}, errOtherKey
	case a.Status == AnswerStatusPending:
		return issue.Answer{Outcome: issue.Pending, Reference: harmless(a.Reference)}, nil
	case a.Status == AnswerStatusDeclined:
		reason, known := reasons[a.Reason]
		if !known {
			return issue.Answer{}, errNoReason
		}
		return issue.Answer{Outcome: issue.Declined, Reference: harmless(a.Reference), Reason: reason,
			Temporary: a.Temporary}, nil
	}
	return issue.Answer{}, errNoStatus
}

// issued returns the issued card, with a flaw if it must not be sold.
func (a Answer) issued(key string) (issue.Answer, error) {
	var c CardCredentials
	if _, err := object(a.Credentials, &c, "card_number", "expiration_date", "security_code", "url",
		"url_password"); err != nil {
		return issue.Answer{}, err
	}
	usd, err := card.ParseUSD(a.USDAmount)
	flaw := ""
	switch {
	case a.Key != key:
		flaw = "the supplier gave a card that is for another key"
	case a.Currency != string(CurrencyUSD):
		flaw = "the supplier gave a card of another currency than US dollars"
	case err != nil || usd == 0: // 0 would mean an unknown amount
		flaw = "the supplier gave a card of no amount that can be read"
	}
	return issue.Answer{
		Outcome: issue.Issued, Reference: harmless(a.Reference), USD: usd, Flaw: flaw,
		Credentials: card.Credentials{CardNumber: c.CardNumber, ExpirationDate: c.ExpirationDate,
			SecurityCode: c.SecurityCode, URL: c.URL, URLPassword: c.URLPassword},
	}, nil
}

// reasons are shown to operators.
var reasons = map[DeclineReason]string{
	DeclineReasonOutOfStock:         "out of stock",
	DeclineReasonInsufficientFunds:  "the balance with the supplier is too small",
	DeclineReasonAmountNotAvailable: "the supplier sells no cards of this amount",
	DeclineReasonLimitReached:       "a limit of the supplier is reached",
	DeclineReasonCompliance:         "a rule of the supplier forbids this card",
	DeclineReasonCanceled:           "the request was canceled",
	DeclineReasonOther:              "the supplier gave no reason",
}

var numbers = regexp.MustCompile(`\d(?:[ -]?\d){11,}`)

// harmless returns a reference, or "" if it may contain a card number. The
// reference is stored and shown; the key identifies the request as well.
func harmless(reference string) string {
	if numbers.MatchString(reference) {
		for _, found := range numbers.FindAllString(reference, -1) {
			digits := strings.NewReplacer(" ", "", "-", "").Replace(found)
			for length := 12; length <= min(19, len(digits)); length++ {
				for i := 0; i+length <= len(digits); i++ {
					if card.LuhnDigit(digits[i:i+length-1]) == digits[i+length-1:i+length] {
						return ""
					}
				}
			}
		}
	}
	return reference
}

// offers reads the offers, the key retention (0 is forever) and the supplier's
// mode, which defaults to live.
func (r reply) offers() ([]card.Offer, time.Duration, Mode, error) {
	if !r.has(http.StatusOK, jsonType) {
		return nil, 0, "", r.fault()
	}
	var list Offers
	fields, err := object(r.body, &list, "offers")
	if err != nil {
		return nil, 0, "", err
	}
	mode := list.Mode
	if _, stated := fields["mode"]; !stated {
		mode = ModeLive
	}
	kept, there := fields["key_retention_seconds"]
	seconds := list.KeyRetentionSeconds
	if !there || len(list.Offers) > maxOffers || string(kept) != "null" && seconds < 1 {
		return nil, 0, "", errNotOffers
	}
	if mode != ModeTest && mode != ModeLive {
		return nil, 0, "", errNoMode
	}
	offers := make([]card.Offer, len(list.Offers))
	for i, text := range list.Offers {
		var o AmountRange
		fields, err := object(text, &o, "min_usd", "max_usd")
		if err != nil {
			return nil, 0, "", err
		}
		left, there := fields["left"]
		least, err1 := card.ParseUSD(o.MinUSD)
		most, err2 := card.ParseUSD(o.MaxUSD)
		if !there || o.Left < 0 || errors.Join(err1, err2) != nil || least > most {
			return nil, 0, "", errNotOffers
		}
		offers[i] = card.Offer{Min: least, Max: most, Left: o.Left}
		if string(left) == "null" {
			offers[i].Left = card.Unlimited
		}
	}
	const longest = int64(math.MaxInt64 / time.Second)
	return offers, time.Duration(min(seconds, longest)) * time.Second, mode, nil
}
