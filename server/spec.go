package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/openapi"
)

// spec is the contract, in the forms in which it is served and in which requests are validated.
type spec struct {
	json   []byte
	routes map[string]*routers.Route // by method and gin's path
	scopes map[string]account.Scope  // that operations need, or noScope, by method and gin's path
}

func loadSpec(yaml []byte) (*spec, error) {
	doc, err := openapi3.NewLoader().LoadFromData(yaml)
	if err != nil {
		return nil, fmt.Errorf("load openapi: %w", err)
	}
	s := &spec{routes: map[string]*routers.Route{}, scopes: map[string]account.Scope{}}
	if s.json, err = doc.MarshalJSON(); err != nil {
		return nil, fmt.Errorf("load openapi: %w", err)
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			// The middleware authenticates, before the body is read.
			operation.Security = openapi3.NewSecurityRequirements()
			route := method + " " + ginPath(path)
			if s.scopes[route], err = scopeOf(operation); err != nil {
				return nil, fmt.Errorf("load openapi: %w", err)
			}
			s.routes[route] = &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: operation}
		}
	}
	return s, nil
}

// ginPath converts a path template to gin's syntax: /cards/{uuid} to /cards/:uuid.
func ginPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

func (s *spec) register(r gin.IRoutes) {
	r.GET("/openapi.yaml", func(c *gin.Context) { c.Data(http.StatusOK, "application/yaml", openapi.YAML) })
	r.GET("/openapi.json", func(c *gin.Context) { c.Data(http.StatusOK, "application/json", s.json) })
}
