package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/cardmint/cardmint/openapi"
)

// etagPrefix returns the prefix of this build's entity tags: another version
// may encode the same card differently.
func etagPrefix() string {
	build := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		build = info.String()
	}
	sum := sha256.Sum256(append([]byte(build), openapi.YAML...))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}

// etag returns the entity tag of a response (RFC 9110). It is weak: it covers
// the content of the response, not its bytes. It depends on whether the token
// may disclose credentials.
func (a *api) etag(gc context.Context, tag string) *string {
	if !newDisclosure(gc).reveals {
		tag += "m"
	}
	return ptr(`W/"` + a.etags + tag + `"`)
}

// noneMatch reports whether an If-None-Match header does not contain an entity
// tag.
func noneMatch(header, etag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		one = strings.TrimSpace(one)
		if one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(etag, "W/") {
			return false
		}
	}
	return true
}

const ifNoneMatch = "If-None-Match"

// joinHeader joins the field lines of a list header (RFC 9110, section 5.3).
func joinHeader(h http.Header, name string) {
	if values := h.Values(name); len(values) > 1 {
		h.Set(name, strings.Join(values, ", "))
	}
}
