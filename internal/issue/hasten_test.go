package issue_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/issue"
)

// A supplier that says that there is news has a pending request looked up at once, and nothing else.
func TestHasten_APendingRequestIsLookedUpAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, r *room) {
		c, other := r.paid(), r.paid()
		r.press.submit = pending
		r.issue(2)
		r.wantCalls("submit", "submit")
		for _, key := range []string{"no key of ours", uuid.NewString(), c.UUID.String()} {
			r.issuer.Hasten(key)
		}
		r.press.lookup = r.press.make
		check(t, r.issuer.Tick(t.Context()))
		r.wantCard(c)
		r.want(other, issue.StatePending, "pending", "")
	})
}

func TestConfig_ARouteMayBeOfOneAmount(t *testing.T) {
	one, none := issue.Only(&press{name: "press"}), issue.Only(&press{name: "press"})
	one[0].Min, one[0].Max = 100_00, 100_00
	none[0].Min, none[0].Max = 100_01, 100_00
	if err := (&issue.Config{Routes: one}).Validate(); err != nil {
		t.Error(err)
	}
	if (&issue.Config{Routes: none}).Validate() == nil {
		t.Error("amounts that end before they begin are valid")
	}
}
