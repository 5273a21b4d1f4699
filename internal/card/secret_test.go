package card_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// showsNothing prints v in every way that a program might by accident.
func showsNothing(t *testing.T, v any) {
	t.Helper()
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		_, _ = fmt.Fprintf(&out, verb+"\n", v)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
	_ = json.NewEncoder(&out).Encode(v)
	if strings.Contains(out.String(), "canary") ||
		strings.Contains(strings.ToLower(out.String()), fmt.Sprintf("%x", "canary")) {
		t.Errorf("shown:\n%s", out.String())
	}
}
