package server

import (
	"bytes"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/gin-gonic/gin"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/openapi"
)

// spec is the contract, as it is served, and as requests are validated.
type spec struct {
	json       []byte
	doc        *openapi3.T
	routes     map[string]map[string]*routers.Route // by method and gin path
	scopes     map[*routers.Route]account.Scope     // required scopes, or noScope
	validation validation
}

// published is the contract of this process. All servers share it: it is
// constant, and takes long to load.
var published = sync.OnceValues(func() (*spec, error) { return loadSpec(openapi.Published) })

// Contract returns the contract, without the security requirements of its
// operations. The caller must not modify it.
func Contract() (*openapi3.T, error) {
	s, err := published()
	if err != nil {
		return nil, err
	}
	return s.doc, nil
}

func loadSpec(yaml []byte) (*spec, error) {
	doc, err := openapi3.NewLoader().LoadFromData(yaml)
	if err != nil {
		return nil, fmt.Errorf("load openapi: %w", err)
	}
	s := &spec{doc: doc, routes: map[string]map[string]*routers.Route{},
		scopes: map[*routers.Route]account.Scope{}, validation: newValidation()}
	if s.json, err = doc.MarshalJSON(); err != nil {
		return nil, fmt.Errorf("load openapi: %w", err)
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			// authenticate does this, before the body is read
			operation.Security = openapi3.NewSecurityRequirements()
			scope, err := scopeOf(operation)
			if err != nil {
				return nil, fmt.Errorf("load openapi: %w", err)
			}
			if s.routes[method] == nil {
				s.routes[method] = map[string]*routers.Route{}
			}
			route := &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: operation}
			s.routes[method][ginPath(path)], s.scopes[route] = route, scope
		}
	}
	return s, nil
}

// route returns the operation of a request.
func (s *spec) route(c *gin.Context) *routers.Route {
	return s.routes[methodOf(c.Request)][c.FullPath()]
}

// ginPath converts a path template to gin's syntax: /cards/{uuid} to
// /cards/:uuid.
func ginPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// contractURL is the server that the contract names.
const contractURL = "http://127.0.0.1:8080"

// register serves the published documents. They name publicURL as the server,
// unless it is "".
func (s *spec) register(r gin.IRoutes, publicURL string) {
	for name, text := range map[string][]byte{
		"/openapi.yaml":     openapi.Published,
		"/openapi-3.1.yaml": openapi.Published31,
		"/openapi.json":     s.json,
	} {
		if publicURL != "" {
			text = bytes.Replace(text, []byte(contractURL), []byte(publicURL), 1)
		}
		kind := "application/" + strings.TrimPrefix(path.Ext(name), ".")
		r.GET(name, func(c *gin.Context) { c.Data(http.StatusOK, kind, text) })
	}
}
