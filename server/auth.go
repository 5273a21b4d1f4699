package server

import (
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// authenticate authenticates the request by its bearer token (RFC 6750, section 2.1), before anything else in it is looked at.
func authenticate(accounts *account.Service, problems problemWriter) gin.HandlerFunc {
	return func(c *gin.Context) {
		sent := c.Request.Header.Values("Authorization")
		if len(sent) > 1 { // a proxy in front of the service may have looked at the other one
			problems.write(c, card.ErrUnauthorized.Saying(`There is more than one "Authorization" header. Send it once.`))
			return
		}
		scheme, token, _ := strings.Cut(strings.Join(sent, ""), " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			problems.write(c, card.ErrUnauthorized.Saying(`The token is missing. Send "Authorization: Bearer <API_TOKEN>" with a token of your account.`))
			return
		}
		who, err := accounts.Authenticate(c.Request.Context(), token)
		if err != nil {
			problems.write(c, err)
			return
		}
		c.Set(identityKey, who)
	}
}

// identity returns the identity that authenticate found.
func identity(c interface{ Value(key any) any }) (account.Identity, bool) {
	who, ok := c.Value(identityKey).(account.Identity)
	return who, ok
}
