package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A response does not grow with the number of errors. Omitted errors are
// counted, and errors of known fields are not hidden by unknown fields that a
// program generated.
func TestProblem_ListsAtMost100Errors(t *testing.T) {
	t.Parallel()
	d := deploy(t, setup{})
	token := d.token(t)
	fields := make([]string, 4000)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"x%04d":1`, i)
	}
	body := func(n int) string { return `{"usd_amount":49,"currency":"none",` + strings.Join(fields[:n], ",") + `}` }

	a := d.send(t, http.MethodPost, "/api/cards", token, body(4000))
	p := a.refused(t, http.StatusUnprocessableEntity, "invalid_request")
	if len(p.Errors) != 100 || p.ErrorsOmitted != 3902 || !strings.HasPrefix(p.Detail, "4002 things") ||
		len(a.body) > 10_000 {
		t.Errorf("%d errors listed, %d omitted, %q, %d bytes", len(p.Errors), p.ErrorsOmitted, p.Detail, len(a.body))
	}
	listed := map[string]bool{}
	for _, f := range p.Errors {
		listed[f.Pointer] = true
	}
	if !listed["/usd_amount"] || !listed["/currency"] || len(listed) != 100 {
		t.Errorf("listed: %v", listed)
	}

	for n, omitted := range map[int]int{98: 0, 99: 1} {
		a := d.send(t, http.MethodPost, "/api/cards", token, body(n))
		p := a.refused(t, http.StatusUnprocessableEntity, "invalid_request")
		if len(p.Errors) != 100 || p.ErrorsOmitted != omitted || strings.Contains(a.body, "errors_omitted") != (omitted > 0) {
			t.Errorf("of %d errors, %d are listed and %d omitted", n+2, len(p.Errors), p.ErrorsOmitted)
		}
	}

	query := strings.Repeat("q%d=1&", 300)
	for i := range 300 {
		query = strings.Replace(query, "%d", fmt.Sprint(i), 1)
	}
	p = d.send(t, http.MethodGet, "/api/cards?"+query+"limit=0", token, "").refused(t, http.StatusUnprocessableEntity,
		"invalid_request")
	if len(p.Errors) != 100 || p.ErrorsOmitted != 201 {
		t.Errorf("in a query, %d errors are listed and %d omitted", len(p.Errors), p.ErrorsOmitted)
	}
}
