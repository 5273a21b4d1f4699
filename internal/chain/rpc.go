package chain

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
	errLogin    = errors.New("login refused (HTTP status 401): check the configured user and password")
	errNoResult = errors.New("answer has neither result nor error")
	errNotAsked = errors.New("answer belongs to another request")
	errTooLong  = errors.New("answer is longer")
)

// rpc speaks JSON-RPC 2.0 over HTTP to one endpoint. Source:
// https://www.jsonrpc.org/specification.
//
// It follows no redirects, uses no proxy, and reads no more than the call's
// limit. Call only methods that may run twice: a request whose connection is
// lost before the response is sent again.
type rpc struct {
	url       string
	client    *http.Client
	transport *http.Transport // the client's, below the login
	// turn lets one call run at a time. Monero's servers accept a login's
	// nonces only in order and on one connection, and a wallet does one thing
	// at a time anyway.
	turn chan struct{}
	sent atomic.Int64 // requests, by which they are numbered
}

// rpcLimit limits one call.
type rpcLimit struct {
	time  time.Duration
	bytes int64 // of the response
}

// rpcError is a failure that the endpoint itself reported.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string {
	const longest = 200
	message := e.Message
	if len(message) > longest {
		message = message[:longest] + "..."
	}
	return fmt.Sprintf("error %d: %q", e.Code, message)
}

// newRPC returns a client for base + "/json_rpc". With a user, it uses HTTP
// digest authentication.
func newRPC(base, user string, password card.Secret) *rpc {
	transport := &http.Transport{
		DialContext:        (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		IdleConnTimeout:    90 * time.Second,
		DisableCompression: true,
	}
	var login http.RoundTripper = transport
	if user != "" {
		login = &digest.Transport{Username: user, Password: password.Reveal(), Transport: transport}
	}
	return &rpc{
		url: strings.TrimSuffix(base, "/") + "/json_rpc",
		client: &http.Client{
			Transport:     login,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		transport: transport,
		turn:      make(chan struct{}, 1),
	}
}

// call calls a method and stores its result in the value that result points to,
// which must have all its fields; see decode. Errors name the method. The error
// is an *rpcError if the endpoint reported it, context.DeadlineExceeded if the
// time ran out, errTooLong if the response exceeds the limit, and
// card.ErrWrongAnswer if the response is not what the method promises.
func (c *rpc) call(ctx context.Context, limit rpcLimit, method string, params, result any) error {
	if err := c.exchange(ctx, limit, method, params, result); err != nil {
		return fmt.Errorf("%s: %w", methodName(method), err)
	}
	return nil
}

// methodName is how errors call a method.
func methodName(method string) string { return strings.ReplaceAll(method, "_", " ") }

func (c *rpc) exchange(ctx context.Context, limit rpcLimit, method string, params, result any) error {
	id := strconv.FormatInt(c.sent.Add(1), 10)
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit.time,
		fmt.Errorf("no answer within %s: %w", limit.time, context.DeadlineExceeded))
	defer cancel()
	status, answer, err := c.post(ctx, limit.bytes, body)
	if err != nil {
		return err
	}
	var envelope struct {
		ID     json.RawMessage `json:"id,omitempty"`
		Result json.RawMessage `json:"result,omitempty"`
		Error  *rpcError       `json:"error,omitempty"`
	}
	err = decode(answer, &envelope)
	ours := string(envelope.ID) == strconv.Quote(id)
	switch {
	case status == http.StatusUnauthorized:
		return errLogin
	case err == nil && envelope.Error != nil && !ours: // its code must not decide anything
		return wrongAnswer(fmt.Errorf("%w: %s", errNotAsked, envelope.Error))
	case err == nil && envelope.Error != nil:
		return envelope.Error
	case status != http.StatusOK:
		return fmt.Errorf("HTTP status %d from %s", status, c.url)
	case err != nil:
		return fmt.Errorf("answer of %s is not JSON-RPC: %w", c.url, err)
	case envelope.Result == nil:
		return wrongAnswer(errNoResult)
	case !ours:
		return wrongAnswer(errNotAsked)
	}
	return decode(envelope.Result, result)
}

func (c *rpc) post(ctx context.Context, limit int64, body []byte) (status int, answer []byte, err error) {
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
	req.Header["Idempotency-Key"] = nil // not sent; tells net/http that it may repeat the request on a new connection
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
		return 0, nil, fmt.Errorf("%w than %d bytes", errTooLong, limit)
	}
	return res.StatusCode, answer, nil
}

// checkEndpoint returns an error if the address or the login of an endpoint is
// not valid. name is the setting's name.
func checkEndpoint(name, address, user string, password card.Secret) error {
	u, err := url.Parse(address)
	switch {
	case err != nil: // not shown: it quotes the address, which may contain a password
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
