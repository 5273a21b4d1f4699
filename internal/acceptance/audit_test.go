package acceptance_test

import (
	"regexp"
	"strings"
	"testing"
)

// Each administrative command writes one audit line to standard error. The line
// never contains a reason.
func TestAudit_OperatorCommand_LogsOneLine(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	p := newProgram(t, "")
	p.env = append(p.env, "CARDMINT_LOG_LEVEL=error") // the audit log ignores it
	audited := func(want string, args ...string) string {
		t.Helper()
		stdout, stderr, code := p.run(args...)
		if code != 0 || !regexp.MustCompile(`(?m) level=INFO msg=audit action=`+want+`$`).MatchString(stderr) {
			t.Errorf("%v: exit code %d; want %s in\n%s", args, code, want, stderr)
		}
		if strings.Contains(stderr, strings.TrimSpace(stdout)) {
			t.Errorf("%v: the log repeats the output", args)
		}
		return strings.TrimSpace(stdout)
	}
	const id, by = `[0-9a-f]{8}-[0-9a-f-]{27}`, ` actor=operator:\S+ `
	p.must(t, "keys", "create")
	p.must(t, "migrate")
	audited("account_created"+by+"account="+id, "account", "create", "shop")
	audited("token_created"+by+"token="+id+" account="+id+" scopes=cards:read", "token", "create", "shop", "--scopes",
		"cards:read")
	first := regexp.MustCompile(id).FindString(p.must(t, "token", "list"))
	audited("token_rotated"+by+"token="+id+" replaced="+first+" account="+id, "token", "rotate", first)
	audited("token_revoked"+by+"token="+first, "token", "revoke", first)
	audited(`key_added`+by+`key=[0-9a-f]{8}`, "keys", "add")
}
