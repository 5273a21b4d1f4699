package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/limit"
)

// authenticate authenticates a request by its bearer token (RFC 6750, section
// 2.1), before anything else in it is read. An address with too many failures
// may use only tokens that this process knows to be valid, without a query of
// the store.
func authenticate(cfg Config, gates *gates, problems problemWriter) gin.HandlerFunc {
	accounts, limits, trusted := cfg.Accounts, cfg.Limits, proxies(cfg.Proxies)
	return func(c *gin.Context) {
		from := limit.Network(trusted.client(c.Request))
		token, err := bearer(c.Request)
		through := gates.known
		if !accounts.Recognizes(token) {
			through = gates.unknown
		}
		if through == gates.unknown {
			if wait, delay := limits.Blocked(from); wait > 0 {
				cfg.Metrics.Limited(limit.Address.String())
				refuseAddress(c, limits, wait, delay, problems)
				return
			}
		}
		var who account.Identity
		if err == nil {
			who, err = gates.authenticate(c.Request.Context(), accounts, token, through)
		}
		if err != nil {
			if errors.Is(err, card.ErrUnauthorized) {
				limits.Fail(from)
			}
			if c.Request.ContentLength != 0 {
				c.Header("Connection", "close") // otherwise net/http would read the body before it responds
			}
			problems.write(c, err)
			return
		}
		c.Set(identityKey, who)
		c.Set(checkTokenKey, func(ctx context.Context) error { return checkToken(ctx, accounts, token) })
	}
}

// authenticate authenticates a token, and holds a slot of a gate while it does.
func (g *gates) authenticate(ctx context.Context, accounts *account.Service, token string,
	through *gate) (account.Identity, error) {
	if err := g.acquire(ctx, through, uuid.Nil); err != nil {
		return account.Identity{}, err
	}
	defer through.release(uuid.Nil)
	return accounts.Authenticate(ctx, token)
}

// bearer returns the token of a request.
func bearer(r *http.Request) (string, error) {
	sent := r.Header["Authorization"]
	switch len(sent) {
	case 0:
		return "", errNoToken
	case 1:
	default: // a proxy in front of the service may have used the other one
		return "", card.ErrUnauthorized.WithMessage(`There is more than one "Authorization" header. Send it once.`)
	}
	scheme, token, _ := strings.Cut(sent[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errNoToken
	}
	return token, nil
}

var errNoToken = card.ErrUnauthorized.WithMessage(
	`The token is missing. Send "Authorization: Bearer <API_TOKEN>" with a token of your account.`)

// checkToken returns an error if a token is no longer valid, or if the check
// fails. It takes at most half a second, so that a response that checks twice a
// second ends within five seconds of a revocation.
func checkToken(ctx context.Context, accounts *account.Service, token string) error {
	ctx, cancel := context.WithTimeout(ctx, tokenCheckInterval)
	defer cancel()
	_, err := accounts.Authenticate(ctx, token)
	// The failed attempt may have refreshed the cache; the cached answer may
	// still be recent enough.
	if err != nil && !errors.Is(err, card.ErrUnauthorized) {
		_, err = accounts.Authenticate(ctx, token)
	}
	return err
}

// identity returns the identity that authenticate has set.
func identity(c interface{ Value(key any) any }) (account.Identity, bool) {
	who, ok := c.Value(identityKey).(account.Identity)
	return who, ok
}
