package issue_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/issue"
)

func TestObserve_CallsAndCards_Reported(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		var mu sync.Mutex
		var calls []string
		var took []time.Duration
		r.with = func(c *issue.Config) {
			c.Observe = issue.Observe{
				Call: func(supplier, call, outcome string, _ time.Duration) {
					mu.Lock()
					defer mu.Unlock()
					calls = append(calls, fmt.Sprint(supplier, " ", call, " ", outcome))
				},
				Issued: func(d time.Duration) { took = append(took, d) },
			}
		}
		r.start()
		name := r.supplier.Name()
		c := r.paid()
		for _, answers := range []handler{answering(issue.Answer{}, errFault), nil} {
			r.supplier.submit = answers
			r.due()
			r.issue(1)
		}
		r.wantCard(c)
		if want := []string{name + " submit error", name + " lookup unknown", name + " submit issued"}; !slices.Equal(calls,
			want) {
			t.Errorf("calls %q, want %q", calls, want)
		}
		if len(took) != 1 || took[0] < 0 {
			t.Errorf("issued within %v, want one time", took)
		}
		calls = nil
		r.paid()
		r.supplier.submit = answering(issue.Answer{}, &issue.BusyError{})
		r.issue(1)
		if want := []string{name + " submit busy"}; !slices.Equal(calls, want) || len(took) != 1 {
			t.Errorf("calls %q, want %q; %d cards issued", calls, want, len(took))
		}
	})
}
