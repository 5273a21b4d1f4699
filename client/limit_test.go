package client

import (
	"net/http"
	"testing"
	"time"
)

func TestLimits_AreReadFromEveryAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		limits, policies []string
		want             []Limit
	}{
		"two limits": {[]string{`"token";r=299;t=1, "account";r=0;t=10`},
			[]string{`"token";q=300;w=10, "account";q=900;w=60`},
			[]Limit{{"token", 299, time.Second, 300, 10 * time.Second}, {"account", 0, 10 * time.Second, 900, time.Minute}}},
		"a limit without a time": {[]string{`"open_cards";r=12, "token";r=1;t=2`}, []string{`"open_cards";q=100`},
			[]Limit{{Name: "open_cards", Left: 12, Quota: 100}, {Name: "token", Left: 1, Reset: 2 * time.Second}}},
		"several headers, other parameters": {[]string{`"a";r=1`, `"b" ; pk=:cHJvag==: ; r=2;t=3`},
			[]string{`"b";qu=requests;q=5;w=60`},
			[]Limit{{Name: "a", Left: 1}, {"b", 2, 3 * time.Second, 5, time.Minute}}},
		"no limits": {nil, nil, nil},
		"unreadable": {
			[]string{`limit=100, remaining=50`, `"a";r=many`, `"a"`, `"`, `"b";r=-1`, `"c";r=9999999999999999999`},
			[]string{`"a"`}, nil},
	} {
		steps := []step{func(r *http.Request) (*http.Response, error) {
			res, err := answer(200, "[]")(r)
			res.Header["Ratelimit"], res.Header["Ratelimit-Policy"] = tc.limits, tc.policies
			return res, err
		}}
		c, _ := scripted(t, steps)
		var res Response
		if _, err := c.ListCurrencies(t.Context(), WithResponse(&res)); err != nil {
			t.Fatal(err)
		}
		if diff := difference(tc.want, res.Limits()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := (Response{}).Limits(); got != nil {
		t.Error(got)
	}
}
