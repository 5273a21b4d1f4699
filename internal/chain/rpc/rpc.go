// Package rpc is the JSON-RPC client of the coins' nodes and wallets. Its
// decoder treats a missing field as an error, never as zero.
//
// It may import package card.
package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/icholy/digest"

	"github.com/cardmint/cardmint/internal/card"
)

// Errors of a JSON-RPC endpoint.
var (
	ErrLogin    = errors.New("login refused (HTTP status 401): check the configured user and password")
	errNoResult = errors.New("answer has neither result nor error")
	errNotAsked = errors.New("answer belongs to another request")
	ErrTooLong  = errors.New("answer is longer")
)

// Client is a JSON-RPC 2.0 client for one endpoint over HTTP. Source:
// https://www.jsonrpc.org/specification.
//
// It follows no redirects, uses no proxy, and limits the size of responses.
// Call only idempotent methods: a request whose connection is lost before the
// response is sent again.
type Client struct {
	url       string
	client    *http.Client
	transport *http.Transport // under the login
	// turn serializes calls. Monero's servers accept a login's nonces only in
	// order and on one connection, and a wallet runs one method at a time
	// anyway.
	turn chan struct{}
	sent atomic.Int64 // requests so far, for their ids
}

// Limit limits one call.
type Limit struct {
	Time  time.Duration
	Bytes int64 // of the response
}

// Error is a failure that the endpoint reported.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string {
	const longest = 200
	message := e.Message
	if len(message) > longest {
		message = message[:longest] + "..."
	}
	return fmt.Sprintf("error %d: %q", e.Code, message)
}

// New returns a client for an endpoint. With a user, it uses HTTP digest
// authentication.
func New(endpoint, user string, password card.Secret) *Client {
	transport := &http.Transport{
		DialContext:        (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		IdleConnTimeout:    90 * time.Second,
		DisableCompression: true,
	}
	var login http.RoundTripper = transport
	if user != "" {
		login = &digest.Transport{Username: user, Password: password.Reveal(), Transport: transport}
	}
	return &Client{
		url: endpoint,
		client: &http.Client{
			Transport:     login,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		transport: transport,
		turn:      make(chan struct{}, 1),
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Call calls a method and stores its result in the value that result points to,
// which must have all its fields; see Decode. Errors name the method. The error
// is an *Error if the endpoint reported it, context.DeadlineExceeded after the
// limit's time, ErrTooLong for a longer response, and card.ErrWrongAnswer if
// the response breaks the method's promises.
func (c *Client) Call(ctx context.Context, limit Limit, method string, params, result any) error {
	if err := c.exchange(ctx, limit, method, params, result); err != nil {
		return fmt.Errorf("%s: %w", MethodName(method), err)
	}
	return nil
}

// MethodName returns the name of a method in errors.
func MethodName(method string) string { return strings.ReplaceAll(method, "_", " ") }

func (c *Client) exchange(ctx context.Context, limit Limit, method string, params, result any) error {
	id := strconv.FormatInt(c.sent.Add(1), 10)
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit.Time,
		fmt.Errorf("no answer within %s: %w", limit.Time, context.DeadlineExceeded))
	defer cancel()
	status, answer, err := c.post(ctx, limit.Bytes, body)
	if err != nil {
		return err
	}
	var envelope struct {
		ID     json.RawMessage `json:"id,omitempty"`
		Result json.RawMessage `json:"result,omitempty"`
		Error  *Error          `json:"error,omitempty"`
	}
	err = Decode(answer, &envelope)
	ours := string(envelope.ID) == strconv.Quote(id)
	switch {
	case status == http.StatusUnauthorized:
		return ErrLogin
	case err == nil && envelope.Error != nil && !ours: // its code must not decide anything
		return WrongAnswer(fmt.Errorf("%w: %s", errNotAsked, envelope.Error)) //nolint:errorlint // must not match
	case err == nil && envelope.Error != nil:
		return envelope.Error
	case status != http.StatusOK:
		return fmt.Errorf("HTTP status %d from %s", status, c.url)
	case err != nil:
		return fmt.Errorf("answer of %s is not JSON-RPC: %w", c.url, err)
	case envelope.Result == nil:
		return WrongAnswer(errNoResult)
	case !ours:
		return WrongAnswer(errNotAsked)
	}
	return Decode(envelope.Result, result)
}

func (c *Client) post(ctx context.Context, limit int64, body []byte) (status int, answer []byte, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["Idempotency-Key"] = nil // not sent; lets net/http repeat the request on a new connection
	res, err := c.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read answer: %w", err)
	}
	if int64(len(answer)) > limit {
		return 0, nil, fmt.Errorf("%w than %d bytes", ErrTooLong, limit)
	}
	return res.StatusCode, answer, nil
}

// CheckEndpoint validates the address and login of an endpoint. name is the
// setting's name.
func CheckEndpoint(name, address, user string, password card.Secret) error {
	u, err := url.Parse(address)
	switch {
	case err != nil: // not shown: it may contain a password
		return fmt.Errorf("%s: must be an address such as http://127.0.0.1:18083", name)
	case u.User != nil:
		return fmt.Errorf("%s: must not hold a login; configure user and password separately", name)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("%s: must be an address such as http://127.0.0.1:18083", name)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s: must end with the port or a path", name)
	case (user == "") != (password == ""):
		return fmt.Errorf("%s: needs both a user and a password, or neither", name)
	}
	return nil
}
