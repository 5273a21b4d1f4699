package issue_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/issue"
	"github.com/cardmint/cardmint/internal/trace"
)

// Spans are marked as failed only if an operator may have to act: a refund is
// due, or the supplier gave no clear answer.
func TestIssue_Spans_ContainOutcome(t *testing.T) {
	flawed := answering(issue.Answer{Outcome: issue.Issued, Credentials: card.Credentials{CardNumber: "1"}}, nil)
	for name, tt := range map[string]struct {
		submit handler
		breaks func(*faultyStore)
		want   []string
	}{
		"issued":   {want: []string{"supplier submit: issued", "issue card: issued"}},
		"pending":  {submit: pending, want: []string{"supplier submit: pending", "issue card: pending"}},
		"unclear":  {submit: hangs, want: []string{"supplier submit: error, failed", "issue card: open"}},
		"declined": {submit: declined, want: []string{"supplier submit: declined", "issue card: refund_due, failed"}},
		"parked":   {submit: flawed, want: []string{"supplier submit: issued", "issue card: parked, failed"}},
		"not sealed": {breaks: func(d *faultyStore) { d.sealFails = errFault }, want: []string{
			"supplier submit: issued", "issue card: , failed"}},
		"not stored": {breaks: func(d *faultyStore) {
			d.commits = func(context.Context, func() error) error { return errFault }
		},
			want: []string{"supplier submit: issued", "issue card: "}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				ended := tracetest.NewSpanRecorder()
				r.with = func(c *issue.Config) {
					c.Tracer = trace.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(ended)).Tracer("test"), nil)
				}
				r.start()
				r.paid()
				if r.supplier.submit = tt.submit; tt.breaks != nil {
					tt.breaks(r.store)
				}
				if _, err := r.issuer.IssueDue(t.Context()); (err != nil) != (tt.breaks != nil) {
					t.Error(err)
				}
				if diff := cmp.Diff(tt.want, endedSpans(ended)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// endedSpans returns the names, outcomes and failures of the ended spans.
func endedSpans(ended *tracetest.SpanRecorder) (all []string) {
	for _, s := range ended.Ended() {
		text := s.Name() + ": "
		for _, a := range s.Attributes() {
			if a.Key == "cardmint.outcome" {
				text += a.Value.AsString()
			}
		}
		if s.Status().Code == codes.Error {
			text += ", failed"
		}
		all = append(all, text)
	}
	return all
}

// Claims are prolonged every two seconds during a slow request. A failed
// prolongation is only logged.
func TestIssue_ProlongFails_Logged(t *testing.T) {
	for name, tt := range map[string]struct {
		fails error
		want  int // lines
	}{
		"prolonged":     {nil, 0},
		"not prolonged": {errFault, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := databases.SQLite(t)
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, url)
				r.store.prolongFails = tt.fails
				c := r.paid()
				r.supplier.submit = after(func() { time.Sleep(5 * time.Second) }, r.supplier.make)
				r.issue(1)
				r.wantCard(c)
				if n := strings.Count(string(r.log.bytes()), "claims not prolonged"); n != tt.want {
					t.Errorf("%d lines, want %d", n, tt.want)
				}
				if want := []int{1, 1}; !slices.Equal(r.store.prolonged, want) {
					t.Errorf("prolonged %v claims, want %v", r.store.prolonged, want)
				}
			})
		})
	}
}
