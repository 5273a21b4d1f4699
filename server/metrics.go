package server

import (
	"time"

	"github.com/gin-gonic/gin"
)

// Metrics records requests. Its methods must be fast, and safe for concurrent
// use.
type Metrics interface {
	// Started and Ended are called at the start and the end of a request. The
	// operation is the operationId in the contract, or "none" for other
	// requests. Health probes are not recorded.
	Started()
	Ended(operation string, status int, took time.Duration)
	// Limited is called when a rate limit refuses a request: token, account,
	// create or address.
	Limited(limit string)
	// Shed is called when a request is refused because too many of its kind are
	// in flight: create, read, manage, bulk or authenticate.
	Shed(kind string)
}

type noMetrics struct{}

func (noMetrics) Started()                         {}
func (noMetrics) Ended(string, int, time.Duration) {}
func (noMetrics) Limited(string)                   {}
func (noMetrics) Shed(string)                      {}

// recordMetrics records requests. It runs outside of recovery, so that a panic
// is recorded with the status of its response.
func recordMetrics(m Metrics, s *spec) gin.HandlerFunc {
	return func(c *gin.Context) {
		path := c.FullPath()
		if path == livePath || path == readyPath {
			return
		}
		operation := "none"
		if route := s.route(c); route != nil {
			operation = route.Operation.OperationID
		}
		start := time.Now()
		m.Started()
		// runs even if the handler aborts the connection
		defer func() { m.Ended(operation, c.Writer.Status(), worked(c, start)) }()
		c.Next()
	}
}
