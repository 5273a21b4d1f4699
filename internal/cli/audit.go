package cli

import (
	"context"
	"log/slog"
)

// audited logs an operator's action after it was done, at every log level. The
// line has the action, its object and the operator, but not the note, which may
// name a customer and is stored in the database. If who is "", the operator is
// the user of this machine. docs/operate/logs.md lists the actions.
func (g *globals) audited(ctx context.Context, action, who string, attrs ...slog.Attr) {
	if who == "" {
		var err error
		if who, err = operatorName("is audited", ""); err != nil {
			who = "?"
		}
	}
	g.Audit.LogAttrs(ctx, slog.LevelInfo, "audit",
		append([]slog.Attr{slog.String("action", action), slog.String("actor", "operator:"+oneLine(who))}, attrs...)...)
}

// about returns the object of an audited action.
func about(key string, what interface{ String() string }) slog.Attr {
	return slog.String(key, what.String())
}
