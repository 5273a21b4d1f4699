package server

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// headRouter registers HEAD wherever GET is registered (RFC 9110, section 9.3.2).
// The same handlers run, and net/http drops the body.
type headRouter struct{ gin.IRouter }

// GET registers handlers for GET and HEAD.
func (r headRouter) GET(path string, handlers ...gin.HandlerFunc) gin.IRoutes {
	r.IRouter.HEAD(path, handlers...)
	return r.IRouter.GET(path, handlers...)
}

// methodOf returns the method under which the contract describes a request: it
// does not repeat for HEAD what it says of GET.
func methodOf(r *http.Request) string {
	if r.Method == http.MethodHead {
		return http.MethodGet
	}
	return r.Method
}
