package acceptance_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// tokenRows returns the rows of 'token list' with a name, by column.
func (p *program) tokenRows(t *testing.T, name string) []map[string]string {
	t.Helper()
	var columns []string
	var found []map[string]string
	for i, line := range strings.Split(p.must(t, "token", "list"), "\n") {
		fields := strings.Fields(line)
		if i == 0 {
			columns = fields
			continue
		}
		row := map[string]string{}
		for j, f := range fields {
			row[columns[j]] = f
		}
		if len(fields) != len(columns) {
			t.Fatalf("columns %q, row %q", columns, line)
		}
		if row["NAME"] == name {
			found = append(found, row)
		}
	}
	return found
}

func TestTokenList_UsedToken_ShowsScopesExpiryAndLastUse(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		p := newProgram(t, url)
		p.account(t)
		books := p.must(t, "token", "create", "shop", "--name", "books", "--scopes", "events:read,cards:read",
			"--expires-in", "90d")
		p.must(t, "token", "create", "shop", "--name", "idle", "--expires-at", "2126-01-31")
		x := &transcript{t: t, p: p}
		x.run("token", "list")
		row := p.tokenRows(t, "books")[0]
		created, err := time.Parse(time.RFC3339, row["CREATED"])
		if err != nil || row["SCOPES"] != "cards:read,events:read" || row["USED"] != "never" || row["REVOKED"] != "-" {
			t.Errorf("%v, %v", row, err)
		}
		if expires, err := time.Parse(time.RFC3339, row["EXPIRES"]); err != nil ||
			!expires.Equal(created.Add(90*24*time.Hour)) {
			t.Errorf("%v, %v", row, err)
		}
		if row := p.tokenRows(t, "idle")[0]; row["SCOPES"] != "all" || row["EXPIRES"] != "2126-01-31T00:00:00Z" {
			t.Errorf("%v", row)
		}

		s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
		c := newClient(t, s.url, books)
		for _, err := range c.Events(t.Context(), 0) {
			if err != nil {
				t.Error(err)
			}
		}
		_, err = c.CreateCard(t.Context(), client.CreateCardRequest{Currency: "monero"})
		if refused := (*client.Error)(nil); !errors.As(err, &refused) || refused.Status != http.StatusForbidden ||
			refused.Code != client.ProblemCodeInsufficientScope {
			t.Errorf("order without the scope: %v", err)
		}
		s.stop(t) // saves the times of last use
		x.run("token", "list")
		row = p.tokenRows(t, "books")[0]
		if used, err := time.Parse(time.RFC3339, row["USED"]); err != nil || used.Before(created) {
			t.Errorf("%v, %v", row, err)
		}
		if row := p.tokenRows(t, "idle")[0]; row["USED"] != "never" {
			t.Errorf("%v", row)
		}
	})
}

func TestTokenRotate_Overlap_KeepsBothTokens(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		p := newProgram(t, url)
		p.account(t)
		old := p.must(t, "token", "create", "shop", "--name", "checkout", "--scopes", "cards:read", "--ttl", "720h")
		id := p.tokenRows(t, "checkout")[0]["ID"]
		stdout, stderr, code := p.run("token", "rotate", id, "--overlap", "2h")
		if code != 0 || !regexp.MustCompile(`^cm_test_[0-9A-Za-z]{33}\n$`).MatchString(stdout) ||
			!regexp.MustCompile(`(?m)^\S{36} replaces `+id+`, which expires at 20\S+Z\n$`).MatchString(stderr) {
			t.Fatalf("exit code %d: %q, %q", code, stdout, stderr)
		}
		rows := p.tokenRows(t, "checkout")
		if len(rows) != 2 || rows[0]["ID"] != id || rows[1]["SCOPES"] != "cards:read" ||
			!strings.Contains(stderr, "\n"+rows[1]["ID"]+" replaces") {
			t.Fatalf("%v", rows)
		}
		oldEnd, err := time.Parse(time.RFC3339, rows[0]["EXPIRES"])
		created, err2 := time.Parse(time.RFC3339, rows[1]["CREATED"])
		expires, err3 := time.Parse(time.RFC3339, rows[1]["EXPIRES"])
		if err := errors.Join(err, err2, err3); err != nil || oldEnd.Sub(created) != 2*time.Hour ||
			expires.Sub(created).Round(time.Minute) != 720*time.Hour {
			t.Errorf("%v, %v", rows, err)
		}
		s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
		for _, text := range []string{old, strings.TrimSpace(stdout)} {
			if _, err := newClient(t, s.url, text).ListCurrencies(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s.stop(t)

		_, stderr, code = p.run("token", "rotate", id)
		if code != 1 || !strings.Contains(stderr, "was rotated before") {
			t.Fatalf("exit code %d: %q", code, stderr)
		}
		next := regexp.MustCompile(`cardmint token rotate (\S+)`).FindStringSubmatch(stderr)
		if next == nil || next[1] != rows[1]["ID"] {
			t.Fatalf("the hint does not name the new token: %q", stderr)
		}
		var got struct {
			ID                   uuid.UUID
			Token, Account, Name string
			Scopes               []string
			ExpiresAt            *time.Time `json:"expires_at"`
			Replaces             struct {
				ID        uuid.UUID
				ExpiresAt time.Time `json:"expires_at"`
			}
		}
		if err := json.Unmarshal([]byte(p.must(t, "token", "rotate", next[1], "--json")), &got); err != nil {
			t.Fatal(err)
		}
		if got.Account != "shop" || got.Name != "checkout" || len(got.Scopes) != 1 || got.Scopes[0] != "cards:read" ||
			got.ExpiresAt == nil ||
			got.Replaces.ID.String() != next[1] || got.Replaces.ExpiresAt.IsZero() ||
			!strings.HasPrefix(got.Token, "cm_test_") || got.ID == got.Replaces.ID {
			t.Errorf("%+v", got)
		}
	})
}

// A live token is replaced by a live one, even if CARDMINT_MODE is not set.
func TestTokenRotate_LiveToken_StaysLive(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	p := newProgram(t, "")
	p.account(t)
	p.must(t, "token", "create", "shop", "--name", "checkout", "--mode", "live")
	if text := p.must(t, "token", "rotate", p.tokenRows(t, "checkout")[0]["ID"]); !strings.HasPrefix(text, "cm_live_") {
		t.Errorf("%.8s", text)
	}
}

func TestToken_Mistake_IsExplained(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	p.account(t)
	id := regexp.MustCompile(`(?m)^(\S{36})`).FindString(p.must(t, "token", "list"))
	p.must(t, "token", "revoke", id)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"scope with a slip": {[]string{"create", "shop", "--scopes", "cards:read,event:read"},
			`there is no scope "event:read": did you mean events:read?`},
		"no such scope": {[]string{"create", "shop", "--scopes", "admin"}, `there is no scope "admin"`},
		"no scope":      {[]string{"create", "shop", "--scopes", ""}, `there is no scope ""`},
		"two ends": {[]string{"create", "shop", "--expires-in", "1d", "--expires-at", "2126-01-31"},
			"--expires-in and --expires-at can't be used together"},
		"expired already":   {[]string{"create", "shop", "--expires-at", "2020-01-31"}, "would have expired already"},
		"no time":           {[]string{"create", "shop", "--expires-at", "tomorrow"}, `"tomorrow" is neither a date such as`},
		"negative lifespan": {[]string{"create", "shop", "--expires-in=-1h"}, "negative"},
		"negative days":     {[]string{"create", "shop", "--expires-in=-1d"}, "number of days"},
		"no lifespan":       {[]string{"create", "shop", "--expires-in", "0d"}, "would have expired already"},
		"no time at all":    {[]string{"create", "shop", "--ttl", "0s"}, "would have expired already"},
		"too many days":     {[]string{"create", "shop", "--expires-in", "100001d"}, "number of days"},
		"half a day":        {[]string{"create", "shop", "--expires-in", "0.5d"}, "number of days"},
		"no unit":           {[]string{"create", "shop", "--expires-in", "90"}, `"90" is not a duration such as 90d or 2h`},
		"rotate nonsense":   {[]string{"rotate", "x"}, "is not the id of a token"},
		"rotate nothing":    {[]string{"rotate", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"}, "there is no token 019aa1c9"},
		"rotate revoked":    {[]string{"rotate", id}, "is revoked or has expired"},
		"negative overlap":  {[]string{"rotate", id, "--overlap=-1h"}, "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := p.run(append([]string{"token"}, tt.args...)...)
			if code == 0 || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\nhint: ") != 1 {
				t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
			}
		})
	}
	if rows := strings.Count(p.must(t, "token", "list"), "\n"); rows != 1 {
		t.Errorf("%d tokens were created", rows)
	}
}
