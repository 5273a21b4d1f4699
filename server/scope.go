package server

import (
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
)

// noScope is the x-scope of operations that any valid token may call.
const noScope account.Scope = "none"

// scopeOf returns the scope of an operation in the contract, or noScope.
// Without an x-scope it returns an error: a new operation must not be callable
// by default.
func scopeOf(operation *openapi3.Operation) (account.Scope, error) {
	name, _ := operation.Extensions["x-scope"].(string)
	if scope := account.Scope(name); scope == noScope || scope.Known() {
		return scope, nil
	}
	return "", fmt.Errorf("operation %s: x-scope %q is no scope, nor %q", operation.OperationID, name, noScope)
}

// authorize refuses requests whose token lacks the operation's scope, before
// the rest of the request is read.
func (s *spec) authorize(problems problemWriter) gin.HandlerFunc {
	return func(c *gin.Context) {
		scope := s.scopes[s.route(c)]
		if who, _ := identity(c); scope != noScope && !who.Scopes.Has(scope) {
			problems.write(c, card.ErrScope.WithScope(string(scope)))
		}
	}
}
