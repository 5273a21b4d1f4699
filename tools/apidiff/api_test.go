package main

import (
	"strings"
	"testing"
)

// The stub is the released API, and a copy with one replacement is the current
// one.
func TestCompare_FailsWhereProgramsBreak(t *testing.T) {
	now, err := load("../../client")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := stub(now)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for name, tc := range map[string]struct{ before, after, says string }{
		"method removed":   {"", "func (c *Client) BuyCard()", "(*Client).BuyCard: removed"},
		"function removed": {"", "func NewFromFile()", "NewFromFile: removed"},
		"parameter added":  {"func NewFromEnv(opts ...Option)", "func NewFromEnv()", "NewFromEnv: changed"},
		"result changed":   {"Reveal() string", "Reveal() []byte", "Secret.Reveal: changed"},
		"field removed": {"type PaymentError struct {", "type PaymentError struct {\n Reason string\n",
			"PaymentError.Reason: removed"},
		"field's type":     {"Attempts  int\n", "Attempts  int64\n", "Response.Attempts: changed"},
		"constant's value": {`"not_found"`, `"notfound"`, "ProblemCodeNotFound: value changed"},
		"constant removed": {"", `const ProblemCodeOld ProblemCode = "old"`, "ProblemCodeOld: removed"},
		"variable removed": {"", "var ErrOld error", "ErrOld: removed"},
		"interface asks for more": {"type Deduplicator interface {\n\tOnce(",
			"type Deduplicator interface {\n}\ntype old interface {\n\tOnce(", "Deduplicator.Once: added"},
		"type's nature": {"type Secret string", "type Secret []byte", "Secret: changed"},
		"only more than before": {"type ListCardsOptions struct {", "type ListCardsOptions struct {\n}\ntype old struct {",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			released := text + "\n" + tc.after
			if tc.before != "" {
				released = strings.Replace(text, tc.before, tc.after, 1)
			}
			if released == text {
				t.Fatalf("the API has no %q", tc.before)
			}
			broken, err := compare([]byte(released), now)
			if err != nil || !strings.Contains(broken, tc.says) || (tc.says == "") != (broken == "") {
				t.Errorf("%q, %v", broken, err)
			}
		})
	}
	if broken, err := compare(raw, now); broken != "" || err != nil {
		t.Errorf("the same API: %q, %v", broken, err)
	}
	for name, released := range map[string]string{"empty": "package client", "unreadable": "package client\nfunc",
		"of another": "package client\nimport \"net/rpc\"\nvar X rpc.Server"} {
		if broken, err := compare([]byte(released), now); err == nil {
			t.Errorf("%s: %q", name, broken)
		}
	}
}
