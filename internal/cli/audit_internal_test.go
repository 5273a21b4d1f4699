package cli

import (
	"strings"
	"testing"
)

func TestLoggers_TheAuditHasNoLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]string{"debug": "debug info error audit", "info": "info error audit",
		"error": "error audit"} {
		for _, format := range []string{"text", "json"} {
			var out strings.Builder
			g := globals{LogFormat: format, LogLevel: level, stderr: &out}
			log, audit := g.loggers()
			log = log.With("a", 1).WithGroup("b")
			log.Debug("says debug")
			log.Info("says info")
			log.Error("says error")
			audit.Info("says audit")
			var got []string
			for _, word := range []string{"debug", "info", "error", "audit"} {
				if strings.Contains(out.String(), "says "+word) {
					got = append(got, word)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s, %s: %q, want %q", format, level, got, want)
			}
		}
	}
}
