package server

import (
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// noScope is the x-scope of operations for which any valid token will do.
const noScope account.Scope = "none"

// scopeOf returns the scope that the contract says an operation needs, or
// noScope. It is an error if the contract does not say it: nobody may call an
// operation because it was forgotten to decide who may.
func scopeOf(operation *openapi3.Operation) (account.Scope, error) {
	name, _ := operation.Extensions["x-scope"].(string)
	if scope := account.Scope(name); scope == noScope || scope.Known() {
		return scope, nil
	}
	return "", fmt.Errorf("operation %s: x-scope %q is no scope, nor %q", operation.OperationID, name, noScope)
}

// authorize refuses requests whose token does not have the scope that the
// operation needs, before anything else in them is looked at.
func (s *spec) authorize(problems problemWriter) gin.HandlerFunc {
	return func(c *gin.Context) {
		scope := s.scopes[s.route(c)]
		if who, _ := identity(c); scope != noScope && !who.Scopes.Has(scope) {
			problems.write(c, card.ErrScope.WithScope(string(scope)))
		}
	}
}
