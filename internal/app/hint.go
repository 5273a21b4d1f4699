package app

import (
	"errors"
	"fmt"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/store"
	"github.com/cardmint/cardmint/internal/vault"
)

// hinted is an error with advice for the operator.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }
func (h *hinted) Hint() string  { return h.hint }

// WithHint adds advice to err. It returns nil if err is nil.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// Hint returns the advice in err, added by this package or by an adapter, or
// "".
func Hint(err error) string {
	var h interface{ Hint() string }
	if !errors.As(err, &h) {
		return ""
	}
	return h.Hint()
}

// Explain adds a hint to an error that any command may return.
func Explain(err error) error {
	switch {
	case err == nil || Hint(err) != "":
		return err
	case errors.Is(err, card.ErrUnavailable):
		return WithHint(err, "check that the database at --database-url runs and that user, password and name are right")
	case errors.Is(err, store.ErrNewerSchema):
		return WithHint(err, "run the newest version of cardmint that has used this database")
	case errors.Is(err, store.ErrOlderSchema):
		return WithHint(err, "run: cardmint migrate; or use the version of cardmint that serves this database")
	case errors.Is(err, store.ErrNoSchema):
		return WithHint(err,
			"check that --database-url names the database that you mean; for a new one run: cardmint migrate")
	case errors.Is(err, store.ErrLocked):
		return WithHint(err,
			"nothing is lost: run it again after the long transactions; PostgreSQL lists them in pg_stat_activity")
	case errors.Is(err, card.ErrCorrupt):
		return WithHint(err,
			"run the newest version of cardmint that has used this database; if that is this one, repair the row, for example from a backup")
	case errors.Is(err, card.ErrWrongKeys):
		return WithHint(err,
			"point --keys to the key file of this database; without it its tokens and credentials can't be read")
	case errors.Is(err, card.ErrMissingKey):
		return WithHint(err, "copy the newest key file here, from the host where 'cardmint keys promote' was run")
	case errors.Is(err, card.ErrRetiredKey):
		return WithHint(err,
			"copy the newest key file here, from the host where 'cardmint keys retire' was run, and try again")
	case errors.Is(err, vault.ErrPermissions):
		return WithHint(err, "remove the access of other users: chmod 600 FILE")
	}
	return WithHint(err, "docs/operate/README.md lists symptoms and their pages")
}

// ExplainDatabase adds a hint to an error of opening a database.
func ExplainDatabase(err error) error {
	var denied *store.PermissionError
	if errors.As(err, &denied) {
		return Explain(err)
	}
	for _, known := range []error{store.ErrNewerSchema, store.ErrOlderSchema, store.ErrNoSchema, store.ErrLocked} {
		if errors.Is(err, known) {
			return Explain(err)
		}
	}
	if errors.Is(err, store.ErrPoolMode) || errors.Is(err, store.ErrPoolParameters) {
		return WithHint(err, "change pgbouncer.ini and reload it, or have --database-url name PostgreSQL itself")
	}
	return WithHint(err,
		"--database-url takes sqlite:PATH in a directory that can be written, or postgres://USER:PASSWORD@HOST/NAME?sslmode=verify-full of a server that runs")
}
