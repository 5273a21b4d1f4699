package acceptance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// previousRelease is a file that names the release before this version, by a
// tag, another revision, or the subject of a commit. Until the first release,
// it contains the subject of the first commit that runs on a newer schema. Each
// release must write its tag there.
const previousRelease = "testdata/previous-release"

// previous is the binary of the previous release, which is built once.
var previous struct {
	sync.Mutex
	path string
}

// buildPrevious builds the previous release from the history of the repository.
func buildPrevious(t *testing.T) (path string) {
	t.Helper()
	previous.Lock()
	defer previous.Unlock()
	if previous.path == "" {
		previous.path = buildFromHistory(t)
	}
	return previous.path
}

func buildFromHistory(t *testing.T) (path string) {
	t.Helper()
	git := rig.Need(t, "git", "git")
	text, err := os.ReadFile(previousRelease)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(text))
	out, err := exec.Command(git, "rev-parse", "--verify", "--quiet", name+"^{commit}").Output()
	commit := strings.TrimSpace(string(out))
	if err != nil {
		history, err := exec.Command(git, "log", "--format=%H %s").CombinedOutput()
		if err != nil && os.Getenv("CI") == "" {
			t.Skipf("left out: no history of the repository: %s", history)
		}
		for line := range strings.Lines(string(history)) {
			if hash, subject, _ := strings.Cut(strings.TrimSpace(line), " "); subject == name {
				commit = hash
			}
		}
	}
	if commit == "" {
		t.Fatalf("%s names %q, which is not in the history", previousRelease, name)
	}
	dir := filepath.Join(filepath.Dir(binary), "previous")
	must(t, os.MkdirAll(dir, 0o700))
	source, path := filepath.Join(dir, "source.tar"), filepath.Join(dir, "cardmint")
	for _, c := range []*exec.Cmd{
		exec.Command(git, "-C", "../..", "archive", "--output", source, commit),
		exec.Command("tar", "-xf", source, "-C", dir),
		exec.Command("go", "build", "-C", dir, "-buildvcs=false", "-o", path, "./cmd/cardmint"),
	} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c.Args, err, out)
		}
	}
	return path
}

// The previous release must run on the new schema while replicas are upgraded
// one by one, and after a downgrade.
func TestUpgrade_PreviousRelease_RunsOnNewerSchema(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: builds the previous release")
	}
	t.Parallel()
	release := buildPrevious(t)
	new(rig.Databases).Each(t, func(t *testing.T, url string) {
		now := newProgram(t, url)
		old := &program{path: release, env: now.env}
		token := now.account(t)
		now.removeSeals(t) // the previous release creates none
		check := func(want ...string) {
			t.Helper()
			s := old.serve(t, "serve", "--simulated", "--rate", "monero=150")
			wantOutput(t, s.Output(), want...)
			sellCard(t, newClient(t, s.url, token))
			s.stop(t)
			old.must(t, "reconcile")
		}
		check()

		db := rig.OpenSQL(t, url)
		alter := func(statement string) {
			t.Helper()
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		// These changes are allowed in the first step of a schema change.
		alter("ALTER TABLE cards ADD COLUMN scratch TEXT NOT NULL DEFAULT 'unknown'")
		alter("ALTER TABLE intents ADD COLUMN scratch TEXT")
		alter("CREATE TABLE scratch (id INTEGER PRIMARY KEY)")
		alter("CREATE INDEX cards_scratch ON cards (scratch)")
		alter("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, TRUE)")
		check("a newer version of cardmint has migrated the database", "schema=99")
		old.must(t, "migrate")

		alter("UPDATE schema_compatibility SET oldest = 99")
		for _, args := range [][]string{{"serve", "--simulated", "--rate", "monero=150"}, {"migrate"}, {"reconcile"}} {
			if stdout, stderr, code := old.run(args...); code != 1 || stdout != "" ||
				!strings.Contains(stderr, "newer schema") || !strings.Contains(stderr, "hint: run the newest version") {
				t.Errorf("%v: exit code %d, printed %q and %q", args, code, stdout, stderr)
			}
		}
		var version int
		if err := db.QueryRow("SELECT MAX(version_id) FROM goose_db_version").Scan(&version); err != nil || version != 99 {
			t.Errorf("version %d, error %v", version, err)
		}
	})
}

// sellCard creates a card, pays for it with simulated money and waits for its
// credentials.
func sellCard(t *testing.T, c *client.Client) *client.Card {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	created, err := c.CreateCard(ctx, client.CreateCardRequest{USDAmount: decimal.NewFromInt(50), Currency: "monero"})
	if err == nil {
		_, err = c.SimulatePayment(ctx, created.UUID, client.SimulatePaymentRequest{})
	}
	if err == nil {
		created, err = c.WaitForCard(ctx, created.UUID)
	}
	if err != nil {
		t.Fatal(err)
	}
	if created.Payment.State != client.PaymentStatePaid || created.Credentials.CardNumber == "" {
		t.Fatalf("%+v", created)
	}
	return created
}
