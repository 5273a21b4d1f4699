package server_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/server"
)

func TestStartupHandler_IsLiveAndUnavailable(t *testing.T) {
	t.Parallel()
	d := &deployment{
		handler: server.NewStartupHandler(slog.New(slog.DiscardHandler),
			server.Check{Name: "database", Run: func(context.Context) error {
				return card.Unready("database missing")
			}}, "")}
	equal(t, "body", d.serve(t, http.MethodGet, "/livez", "", "").want(t, http.StatusOK).body, `{"status":"ok"}`)
	equal(t, "body", d.serve(t, http.MethodGet, "/readyz", "", "").want(t, http.StatusServiceUnavailable).body,
		`{"failing":["database"],"reasons":{"database":"database missing"},"status":"not ready"}`)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		a := d.serve(t, method, "/api/cards", "", "")
		a.refused(t, http.StatusServiceUnavailable, "unavailable")
		equal(t, "asks to try again", a.header.Get("Retry-After"), "5")
	}
}
