package server

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// cors lets pages of configured origins call the API from a browser (the CORS
// protocol of the Fetch standard). It never allows credentials that the browser
// attaches: pages send tokens themselves.
type cors struct {
	origins                   map[string]bool
	methods, headers, exposed string
}

// newCORS allows the methods and headers of the contract.
func newCORS(origins []string, s *spec) cors {
	methods := map[string]bool{http.MethodHead: true}
	headers := map[string]bool{"Authorization": true, "Content-Type": true, "X-Request-Id": true}
	exposed := map[string]bool{}
	for route := range s.scopes {
		methods[route.Method] = true
		for _, p := range route.Operation.Parameters {
			if p.Value.In == "header" {
				headers[p.Value.Name] = true
			}
		}
		for _, response := range route.Operation.Responses.Map() {
			for name := range response.Value.Headers {
				exposed[name] = true
			}
		}
	}
	x := cors{origins: map[string]bool{}, methods: list(methods), headers: list(headers), exposed: list(exposed)}
	for _, origin := range origins {
		x.origins[origin] = true
	}
	return x
}

func list(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }

// handle allows an origin to read the response, and responds to preflight
// requests, which have no token.
func (x cors) handle(c *gin.Context) {
	if path := c.Request.URL.Path; !strings.HasPrefix(path, "/api/") && !strings.HasPrefix(path, "/openapi.") {
		return
	}
	h := c.Writer.Header()
	h.Add("Vary", "Origin") // even if the origin is not allowed: a cache must not return its response to an allowed origin
	origin := c.GetHeader("Origin")
	if !x.origins[origin] {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if c.Request.Method == http.MethodOptions && c.GetHeader("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", x.methods)
		h.Set("Access-Control-Allow-Headers", x.headers)
		h.Set("Access-Control-Max-Age", "600")
		c.AbortWithStatus(http.StatusNoContent)
		return
	}
	h.Set("Access-Control-Expose-Headers", x.exposed)
}
