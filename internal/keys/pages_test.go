package keys_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
)

// paged is a store that returns prepared pages in order.
type paged struct {
	keys.Store // nil
	pages      []page
	calls      int
}

type page struct {
	found, looked int // purged and dated, or users and rows read
	err           error
}

func (p *paged) next(after uuid.UUID) (now page, last uuid.UUID, err error) {
	if want := (uuid.UUID{15: byte(p.calls)}); after != want {
		return page{}, after, errors.New("the same page was read again")
	}
	if p.calls++; p.calls > len(p.pages) {
		return page{}, after, errors.New("read beyond the last page")
	}
	now = p.pages[p.calls-1]
	return now, uuid.UUID{15: byte(p.calls)}, now.err
}

func (p *paged) SealedSets() []keys.Set { return []keys.Set{{Name: "credentials"}} }

func (p *paged) UsersOf(_ context.Context, _ string, _ card.KeyID, after uuid.UUID, _ int) (users int64,
	last uuid.UUID, looked int, err error) {
	now, last, err := p.next(after)
	return int64(now.found), last, now.looked, err
}

func (p *paged) PurgeCredentials(context.Context, time.Duration, int) (purged, dated int64, err error) {
	now, _, err := p.next(uuid.UUID{15: byte(p.calls)})
	return int64(now.found), int64(now.looked), err
}

// A key is retired only if no row up to the last one needs it, even if the last
// page is full.
func TestUsers_ReadsEveryPage(t *testing.T) {
	for name, tt := range map[string]struct {
		pages []page
		want  int64
	}{
		"nothing":              {[]page{{0, 0, nil}}, 0},
		"less than a page":     {[]page{{2, 4999, nil}}, 2},
		"a page":               {[]page{{0, 5000, nil}, {0, 0, nil}}, 0},
		"two pages and a last": {[]page{{1, 5000, nil}, {0, 5000, nil}, {3, 1, nil}}, 4},
	} {
		s := &paged{pages: tt.pages}
		if n, err := keys.Users(t.Context(), s, 1); err != nil || n != tt.want || s.calls != len(tt.pages) {
			t.Errorf("%s: %d, %v after %d calls", name, n, err, s.calls)
		}
	}
	s := &paged{pages: []page{{1, 5000, nil}, {err: errBroken}}}
	if _, err := keys.Users(t.Context(), s, 1); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
}

// A tick continues while there may be more credentials to purge or to date, and
// stops at the first error.
func TestPurger_ManyPages_PurgesAll(t *testing.T) {
	for name, pages := range map[string][]page{
		"nothing":             {{0, 0, nil}},
		"less than a page":    {{499, 499, nil}},
		"a page of each":      {{500, 500, nil}, {1, 2, nil}},
		"a page to purge":     {{500, 0, nil}, {500, 0, nil}, {499, 0, nil}},
		"a page to date":      {{0, 500, nil}, {0, 500, nil}, {0, 499, nil}},
		"an error":            {{500, 500, nil}, {0, 0, errBroken}},
		"an error at the end": {{500, 500, nil}, {3, 3, errBroken}},
	} {
		s := &paged{pages: pages}
		purger, err := keys.NewPurger(s, time.Hour, slog.New(slog.DiscardHandler))
		check(t, err)
		if err := purger.Tick(t.Context()); !errors.Is(err, pages[len(pages)-1].err) || s.calls != len(pages) {
			t.Errorf("%s: error %v after %d calls", name, err, s.calls)
		}
	}
}
