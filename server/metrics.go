package server

import (
	"time"

	"github.com/gin-gonic/gin"
)

// Metrics is told of requests. It must be safe for concurrent use, and quick.
type Metrics interface {
	// Begin is called when a request has begun, and End when it has ended. The
	// operation is the operationId in the contract, or "none" for a request of
	// none of them. Probes of health are not counted.
	Started()
	Ended(operation string, status int, took time.Duration)
	// Refuse is called when a limit refuses a request: token, account, create
	// or address.
	Limited(limit string)
	// Shed is called when a request is refused because too many of its kind are
	// under way: create, read, manage, bulk or authenticate.
	Shed(kind string)
}

type noMetrics struct{}

func (noMetrics) Started()                         {}
func (noMetrics) Ended(string, int, time.Duration) {}
func (noMetrics) Limited(string)                   {}
func (noMetrics) Shed(string)                      {}

// recordMetrics tells the meter of requests. It is outside of recovery, so that
// a panic counts with the status that it is answered with.
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
