package server

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

// The delay of a refusal ends when the client disconnects or the server shuts
// down.
func TestDelayRefusal_EndsWithClientOrServer(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	over := make(chan struct{})
	close(over)
	for name, ctx := range map[string]context.Context{
		"the client is gone": gone,
		"the server ends":    context.WithValue(t.Context(), shutdownKey{}, (<-chan struct{})(over)),
	} {
		c, _ := gin.CreateTestContext(httptest.NewRecorder())
		c.Request = httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		start := time.Now()
		delayRefusal(c, time.Hour) // otherwise the test hangs
		if worked(c, start) < 0 {
			t.Errorf("%s: the recorded delay exceeds the elapsed time", name)
		}
	}
}
