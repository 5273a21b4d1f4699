package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// HEAD is GET without the body (RFC 9110, section 9.3.2).
func TestHead_EqualsGet(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	made := d.send(t, http.MethodPost, "/api/cards", token, orderBody("50")).want(t, http.StatusCreated)
	hook := d.send(t, http.MethodPost, "/api/webhooks", token, hookURL)
	paths := append(
		[]string{"/api/cards?limit=1", "/api/cards/none", "/api/none", made.header.Get("Location"),
			hook.header.Get("Location")}, outsideContract...)
	operations := 0
	for template, item := range contract().Paths.Map() {
		if item.Get != nil {
			operations++
			paths = append(paths,
				strings.NewReplacer("{uuid}", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", "{webhook_id}",
					"019aa1c9-f868-7cef-8e4e-9b1c97fb1d88").Replace(template))
		}
	}
	if operations < 7 {
		t.Fatalf("only %d operations read", operations)
	}
	for _, who := range []string{token, ""} {
		for _, path := range paths {
			get := d.send(t, http.MethodGet, path, who, "", "X-Request-Id", "same")
			head := d.send(t, http.MethodHead, path, who, "", "X-Request-Id", "same")
			equal(t, path+": status", head.status, get.status)
			equal(t, path+": body", head.body, "")
			for _, h := range []http.Header{get.header, head.header} {
				h.Del("Date")
				h.Del("RateLimit")                 // each request counts
				if h.Get("Content-Length") == "" { // net/http counts a body that is short
					get.header.Del("Content-Length")
				}
			}
			equal(t, path+": headers", head.header, get.header)
		}
	}
}

// The headers of the feed do not wait for events.
func TestHead_DoesNotWait(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	d.send(t, http.MethodHead, "/api/events?wait=60", token, "").want(t, http.StatusOK)
	stream := d.send(t, http.MethodHead, "/api/events", token, "", "Accept", "text/event-stream").want(t, http.StatusOK)
	equal(t, "type", stream.header.Get("Content-Type"), "text/event-stream")
}
