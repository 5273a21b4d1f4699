package server

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// headRouter registers HEAD along with GET (RFC 9110, section 9.3.2). The same
// handlers run, and net/http drops the body.
type headRouter struct{ gin.IRouter }

// GET registers handlers for GET and HEAD.
func (r headRouter) GET(path string, handlers ...gin.HandlerFunc) gin.IRoutes {
	r.IRouter.HEAD(path, handlers...)
	return r.IRouter.GET(path, handlers...)
}

// methodOf returns the method of a request in the contract, which describes
// HEAD by GET.
func methodOf(r *http.Request) string {
	if r.Method == http.MethodHead {
		return http.MethodGet
	}
	return r.Method
}
