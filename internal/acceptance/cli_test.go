package acceptance_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/client"
)

func TestCLI_BadConfiguration_ExitsWithHint(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	p.must(t, "keys", "create")
	p.must(t, "migrate")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	readable := filepath.Join(t.TempDir(), "readable.keys")
	if err := os.WriteFile(readable, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	login := filepath.Join(t.TempDir(), "login")
	if err := os.WriteFile(login, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	openLogin := filepath.Join(t.TempDir(), "login")
	if err := os.WriteFile(openLogin, []byte("cardmint:canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	simulated := []string{"serve", "--simulated", "--rate", "monero=150"}
	for name, args := range map[string][]string{
		"unknown command":   {"serv"},
		"unknown flag":      {"serve", "--port", "80"},
		"unknown role":      {"serve", "--role", "boss"},
		"other coin's rate": {"serve", "--simulated", "--rate", "bitcoin=60000"},
		"unknown source":    {"serve", "--simulated", "--rate-sources", "nobody"},
		"quorum too large":  {"serve", "--simulated", "--rate-sources", "kraken"},
		"no time for rates": {"serve", "--simulated", "--rate-every", "0s"},
		"rates too old":     {"serve", "--simulated", "--rate-every", "10m"},
		"quorum of nobody":  {"serve", "--simulated", "--rate-quorum", "0"},
		"no spread":         {"serve", "--simulated", "--rate-max-spread", "0"},
		"no blindness":      {"serve", "--simulated", "--rate", "monero=150", "--max-blind", "0s"},
		"bad floor":         {"serve", "--simulated", "--rate-floor", "monero=-1"},
		"no move":           {"serve", "--simulated", "--rate-max-move", "0"},
		"large move":        {"serve", "--simulated", "--rate-max-move", "101"},
		"bad ceiling":       {"serve", "--simulated", "--rate-ceiling", "monero=5e3"},
		"low ceiling":       {"serve", "--simulated", "--rate-floor", "monero=50", "--rate-ceiling", "monero=49"},
		"bad markup":        {"serve", "--simulated", "--rate", "monero=150", "--markup", "-1"},
		"large markup":      {"serve", "--simulated", "--rate", "monero=150", "--markup", "101"},
		"negative limit":    {"serve", "--simulated", "--rate", "monero=150", "--max-open-usd", "-1"},
		"bad limit":         {"serve", "--simulated", "--rate", "monero=150", "--limit-token", "20"},
		"bad network":       {"serve", "--simulated", "--rate", "monero=150", "--trusted-proxies", "10.0.0.1"},
		"bad password file": {"serve", "--rate", "monero=150", "--monero-wallet-password", "/no/such/file"},
		"absurd rate":       {"serve", "--simulated", "--rate", "monero=-1"},
		"live mode":         append(simulated, "--mode", "live"),
		"no key file":       append(simulated, "--keys", "/no/such/file"),
		"readable key file": append(simulated, "--keys", readable),
		"no such directory": append(simulated, "--database-url", "sqlite:/no/such/dir/x.db"),
		"no such database": append(simulated, "--database-url", "postgres://127.0.0.1:1/x?sslmode=disable",
			"--database-wait", "1s"),
		"unknown database":   append(simulated, "--database-url", "mysql://x"),
		"bad database url":   append(simulated, "--database-url", "postgres:host=127.0.0.1 password=two canary words"),
		"port is taken":      append(simulated, "--listen", taken.Addr().String()),
		"short quotes":       append(simulated, "--quote-ttl", "1s"),
		"no confirmations":   {"serve", "--rate", "monero=150", "--monero-confirmations", "0"},
		"bad wallet address": {"serve", "--rate", "monero=150", "--monero-wallet-url", "nonsense"},
		"bad login file":     {"serve", "--rate", "monero=150", "--monero-wallet-login", login},
		"readable login":     {"serve", "--rate", "monero=150", "--monero-daemon-login", openLogin},
		"readable password": {"serve", "--rate", "monero=150", "--monero-wallet-file", "view", "--monero-wallet-password",
			openLogin},
		"escape in a name":    {"account", "create", "sh\x1b[2Kop"},
		"no wallet":           {"wallet", "check", "--monero-daemon-url", "http://127.0.0.1:1"},
		"dev on postgres":     {"dev", "--database-url", "postgres://x/y"},
		"keys exist":          {"keys", "create"},
		"no such account":     {"token", "create", "nobody"},
		"not a token's id":    {"token", "revoke", "x"},
		"no such token":       {"token", "revoke", "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"},
		"no account's name":   {"account", "create", ""},
		"missing argument":    {"account", "create"},
		"migrate, no such db": {"migrate", "--database-url", "sqlite:/no/such/dir/x.db"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			stdout, stderr, code := p.run(args...)
			if code == 0 || stdout != "" {
				t.Errorf("exit code %d, printed %q", code, stdout)
			}
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			for len(lines) > 2 && (strings.Contains(lines[0], "level=") || strings.HasSuffix(lines[0], "...")) {
				lines = lines[1:] // progress and log lines
			}
			if len(lines) != 2 || !strings.HasPrefix(lines[0], "cardmint: ") || !strings.HasPrefix(lines[1], "hint: ") {
				t.Errorf("printed %q", stderr)
			}
			if strings.Contains(stderr, "canary") {
				t.Errorf("a secret was printed: %q", stderr)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestToken_Revoked_IsRefused(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	token := p.account(t)
	if !regexp.MustCompile(`^cm_test_[0-9A-Za-z]{33}$`).MatchString(token) {
		t.Errorf("token create printed %q", token)
	}
	expiring := p.must(t, "token", "create", "shop", "--name", "checkout", "--ttl", "720h")
	list := p.must(t, "token", "list")
	if strings.Contains(list, token) || !strings.Contains(list, "checkout") || strings.Count(list, "\n") != 2 {
		t.Errorf("token list printed %q", list)
	}
	s := p.serve(t, "serve", "--simulated", "--rate", "monero=150")
	for _, text := range []string{token, expiring} {
		if _, err := newClient(t, s.url, text).ListCurrencies(t.Context()); err != nil {
			t.Error(err)
		}
	}
	id := regexp.MustCompile(`(?m)^(\S+)\s+shop\s+checkout`).FindStringSubmatch(list)[1]
	p.must(t, "token", "revoke", id) // in a process other than the server
	deadline := time.Now().Add(6 * time.Second)
	for {
		_, err := newClient(t, s.url, expiring).ListCurrencies(t.Context())
		if refused(err) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("accepted five seconds after it was revoked: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop(t)
}

func TestHelp_Requested_PrintsToStandardOutput(t *testing.T) {
	p := newProgram(t, "")
	for _, args := range [][]string{{}, {"--help"}, {"serve", "--help"}, {"token", "create", "--help"}} {
		stdout, stderr, code := p.run(args...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "cardmint") {
			t.Errorf("%v: exit code %d, standard error %q", args, code, stderr)
		}
	}
	if out := p.must(t, "version"); !strings.HasPrefix(out, "cardmint ") {
		t.Error(out)
	}
}

func TestDev_Restarted_KeepsToken(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	p := newProgram(t, "")
	var tokens []string
	for range 2 {
		s := p.serve(t, "dev")
		token := regexp.MustCompile(`(?m)^token: (\S+)$`).FindStringSubmatch(s.Output())[1]
		tokens = append(tokens, token)
		if _, err := newClient(t, s.url, token).ListCurrencies(t.Context()); err != nil {
			t.Error(err)
		}
		s.stop(t)
	}
	if tokens[0] != tokens[1] {
		t.Errorf("tokens %q", tokens)
	}
}

func TestServe_OtherKeyFile_IsRefused(t *testing.T) {
	skipIfShort(t)
	p := newProgram(t, "")
	p.account(t)
	other := filepath.Join(t.TempDir(), "other.keys")
	p.must(t, "keys", "create", "--keys", other)
	_, stderr, code := p.run("serve", "--simulated", "--rate", "monero=150", "--keys", other)
	if code != 1 || !strings.Contains(stderr, "hint: point --keys to the key file of this database") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func refused(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Code == client.ProblemCodeUnauthorized
}

func TestDev_StartFails_LeavesNoFiles(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for name, args := range map[string][]string{
		"port is taken": {"--listen", taken.Addr().String()},
		"absurd rate":   {"--rate=-1"},
	} {
		dir := t.TempDir()
		_, stderr, code := newProgram(t,
			"").run(append(
			[]string{"dev", "--keys", filepath.Join(dir, "x.keys"), "--database-url", "sqlite:" + filepath.Join(dir, "x.db")},
			args...)...)
		if code != 1 || !strings.Contains(stderr, "hint: ") {
			t.Errorf("%s: exit code %d, printed %q", name, code, stderr)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: remaining files %v, error %v", name, left, err)
		}
	}
}
