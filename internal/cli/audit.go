package cli

import (
	"context"
	"log/slog"
)

// audited leaves one line of what an operator did, whatever the level of the
// log: what, who and to what, never why, which may name a customer and is kept
// in the database. who may be "" for the user of this machine. It is called
// once the deed is done. docs/operate/logs.md lists the actions.
func (g *globals) audited(ctx context.Context, action, who string, attrs ...slog.Attr) {
	if who == "" {
		var err error
		if who, err = decider("is audited", ""); err != nil {
			who = "?"
		}
	}
	g.Audit.LogAttrs(ctx, slog.LevelInfo, "audit",
		append([]slog.Attr{slog.String("action", action), slog.String("actor", "operator:"+oneLine(who))}, attrs...)...)
}

// about is what an audited action is about.
func about(key string, what interface{ String() string }) slog.Attr {
	return slog.String(key, what.String())
}
