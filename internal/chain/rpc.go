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
	"strings"
	"time"

	"github.com/icholy/digest"

	"github.com/cardmint/cardmint/internal/card"
)

// Errors of a JSON-RPC endpoint.
var (
	errLogin    = errors.New("login refused (HTTP status 401): check the configured user and password")
	errNoResult = errors.New("answer has neither result nor error")
	errTooLong  = errors.New("answer is longer")
)

// rpc speaks JSON-RPC 2.0 over HTTP to one endpoint. Source: https://www.jsonrpc.org/specification.
//
// It follows no redirects, uses no proxy, and reads no more than it is told to. Only methods that may run twice belong here:
// a request whose connection was lost before an answer came is sent again.
type rpc struct {
	url       string
	client    *http.Client
	transport *http.Transport // the client's, below the login
	// turn is held by the call under way. Monero's servers want a login's nonce used in order and on its own connection only,
	// and a wallet does one thing at a time anyway.
	turn chan struct{}
}

// rpcLimit is what one call may take.
type rpcLimit struct {
	time  time.Duration
	bytes int64
}

// rpcError is a failure that the endpoint reported itself.
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

// newRPC returns the client of base + "/json_rpc". A user means HTTP digest authentication.
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

// call runs a method and stores its result in the value that result points to. Errors name the method; the endpoint's own
// failures are *rpcError, a missed deadline is context.DeadlineExceeded, an answer above the limit errTooLong.
func (c *rpc) call(ctx context.Context, limit rpcLimit, method string, params, result any) error {
	if err := c.exchange(ctx, limit, method, params, result); err != nil {
		return fmt.Errorf("%s: %w", strings.ReplaceAll(method, "_", " "), err)
	}
	return nil
}

func (c *rpc) exchange(ctx context.Context, limit rpcLimit, method string, params, result any) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "0", "method": method, "params": params})
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
		Result json.RawMessage `json:"result"`
		Error  *rpcError       `json:"error"`
	}
	err = json.Unmarshal(answer, &envelope)
	switch {
	case status == http.StatusUnauthorized:
		return errLogin
	case err == nil && envelope.Error != nil:
		return envelope.Error
	case status != http.StatusOK:
		return fmt.Errorf("HTTP status %d from %s", status, c.url)
	case err != nil:
		return fmt.Errorf("answer of %s is not JSON-RPC: %w", c.url, err)
	case len(envelope.Result) == 0 || string(envelope.Result) == "null":
		return errNoResult
	}
	if err := json.Unmarshal(envelope.Result, result); err != nil {
		return fmt.Errorf("result is not what the method promises: %w", err)
	}
	return nil
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
	req.Header["Idempotency-Key"] = nil // not sent; tells net/http that a lost connection may be tried again
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

// checkEndpoint reports what is wrong with the address and the login of an endpoint; name is the setting's.
func checkEndpoint(name, address, user string, password card.Secret) error {
	u, err := url.Parse(address)
	switch {
	case err != nil: // url.Parse quotes the address, and with it a password
		return fmt.Errorf("%s: must be an address such as http://127.0.0.1:18083", name)
	case u.User != nil:
		return fmt.Errorf("%s: must not hold a login; configure user and password apart from it", name)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("%s: must be an address such as http://127.0.0.1:18083", name)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s: must end with the port or a path", name)
	case (user == "") != (password == ""):
		return fmt.Errorf("%s: needs both a user and a password, or none of them", name)
	}
	return nil
}
