//go:build drill

package acceptance_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// Drills restore, duplicate or stop the database of the real binary, on real
// PostgreSQL and with real Monero.
var (
	drillRounds = flag.Int("drill-rounds", 1, "number of rounds of each drill")
	drillLeast  = flag.Duration("drill-least", time.Second, "minimum age of restored backups")
	drillAge    = flag.Duration("drill-age", 8*time.Second, "maximum age of restored backups")
	drillSeed   = flag.Uint64("drill-seed", 0, "random seed; 0 for the current time")
)

// drill is a service under load, with a record of its sold cards and events.
type drill struct {
	t       *testing.T
	random  *rand.Rand
	net     *rig.MoneroNet
	wallet  *rig.MoneroWallet
	program *program
	token   string
	servers []*server
	sold    map[string]uuid.UUID // cards by address, including cards that the database has lost
	seqs    map[int64]uuid.UUID  // events by number
}

// newDrill creates a service with its own wallet.
func newDrill(t *testing.T, databaseURL string) *drill {
	t.Helper()
	seed := *drillSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-drill-seed %d", seed)
	d := &drill{t: t, random: rand.New(rand.NewPCG(seed, 0)), net: rig.Monero(t), sold: map[string]uuid.UUID{},
		seqs: map[int64]uuid.UUID{}}
	d.wallet = d.net.NewWallet(t, "", "")
	d.program = newProgram(t, databaseURL)
	d.program.env = append(d.program.env, "CARDMINT_RATE=monero=150", "CARDMINT_WEBHOOK_INSECURE=true",
		"CARDMINT_MONERO_CONFIRMATIONS=2",
		"CARDMINT_ADDRESS_POOL=50", "CARDMINT_MONERO_DAEMON_URL="+d.net.DaemonURL, "CARDMINT_MONERO_WALLET_URL="+d.wallet.URL)
	d.token = d.program.account(t)
	return d
}

// backupAge returns a random age for a backup, between -drill-least and
// -drill-age. Its logarithm is uniformly distributed: otherwise ages of a
// second or two, which lose only a few events, would be rare.
func (d *drill) backupAge() time.Duration {
	least, most := drillLeast.Seconds(), drillAge.Seconds()
	return time.Duration(least * math.Pow(most/least, d.random.Float64()) * float64(time.Second))
}

// start starts a process for each role, and waits until all are ready.
func (d *drill) start(roles ...string) {
	d.t.Helper()
	d.servers = nil
	for _, role := range roles {
		d.servers = append(d.servers, d.program.serve(d.t, "serve", "--role", role))
	}
}

// crash kills all processes.
func (d *drill) crash() {
	for _, s := range d.servers {
		s.Kill()
	}
	d.servers = nil
}

// tryOrder orders a card from a server. It returns nil if the service was
// unavailable.
func (d *drill) tryOrder(s *server) *client.Card {
	d.t.Helper()
	c, err := client.New(s.url, d.token, client.WithRetry(1, time.Minute))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 25*time.Second)
	defer cancel()
	card, err := c.CreateCard(ctx,
		client.CreateCardRequest{USDAmount: decimal.RequireFromString("150"), Currency: "monero"})
	var refused *client.Error
	if err != nil && (!errors.As(err, &refused) || refused.Status == http.StatusServiceUnavailable) {
		return nil
	}
	if err != nil {
		d.t.Fatal(err)
	}
	if other, twice := d.sold[card.Payment.Address]; twice {
		d.t.Errorf("address %s belongs to cards %s and %s", card.Payment.Address, other, card.UUID)
	}
	d.sold[card.Payment.Address] = card.UUID
	return card
}

// sell sells n cards, retrying while the service is unavailable.
func (d *drill) sell(n int) []*client.Card {
	d.t.Helper()
	var cards []*client.Card
	for deadline := time.Now().Add(3 * time.Minute); len(cards) < n; {
		if c := d.tryOrder(d.servers[len(cards)%len(d.servers)]); c != nil {
			cards = append(cards, c)
			continue
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("only %d of %d cards were sold", len(cards), n)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return cards
}

// sellFor sells cards until duration has passed. It skips orders that fail.
func (d *drill) sellFor(duration time.Duration) []*client.Card {
	d.t.Helper()
	var cards []*client.Card
	for until := time.Now().Add(duration); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if c := d.tryOrder(d.servers[d.random.IntN(len(d.servers))]); c != nil {
			cards = append(cards, c)
		}
	}
	return cards
}

// pay pays for a card that the database may have lost.
func (d *drill) pay(c *client.Card) (txID string) {
	d.t.Helper()
	txID = d.net.Pay(d.t, c.Payment.Address, c.Payment.Amount.Mul(piconero).IntPart())
	d.net.Confirm(d.t, txID, 2)
	return txID
}

// checkFeed reads the feed. It fails the test if an event's number was used
// before, or if numbers jump without a reset.
func (d *drill) checkFeed() {
	d.t.Helper()
	last, resets := int64(0), 0
	for e, err := range newClient(d.t, d.servers[0].url, d.token).Events(d.t.Context(), 0) {
		if err != nil {
			d.t.Fatal(err)
		}
		if e.Type == client.EventTypeFeedReset {
			resets++
		} else if e.Seq != last+1 {
			d.t.Errorf("event %d follows %d", e.Seq, last)
		}
		if id, known := d.seqs[e.Seq]; known && id != e.ID {
			d.t.Errorf("event %d has the id %s, and had %s before", e.Seq, e.ID, id)
		}
		d.seqs[e.Seq], last = e.ID, e.Seq
	}
}

// awaitUnattributed waits until the unattributed transfers include the
// transactions.
func (d *drill) awaitUnattributed(txIDs ...string) {
	d.t.Helper()
	var list string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		list = d.program.must(d.t, "transfers", "--unattributed")
		missing := 0
		for _, id := range txIDs {
			if !strings.Contains(list, id) {
				missing++
			}
		}
		if missing == 0 {
			return
		}
	}
	d.t.Errorf("payments %v are not all listed:\n%s", txIDs, list)
}

// awaitIssued waits until a card is issued.
func (d *drill) awaitIssued(c *client.Card) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	if _, err := newClient(d.t, d.servers[0].url, d.token).WaitForCard(ctx, c.UUID); err != nil {
		d.t.Errorf("card %s: %v", c.UUID, err)
	}
}

// checkBooks fails the test unless the books agree.
func (d *drill) checkBooks() {
	d.t.Helper()
	d.program.reconcile(d.t)
}

// readiness returns the response of /readyz.
func readiness(t *testing.T, s *server) (status int, body string) {
	t.Helper()
	response, err := http.Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// backupMethod saves and restores a database with the tools of that database.
type backupMethod struct {
	url     string
	save    func(t *testing.T, p *program, to string)
	restore func(t *testing.T, from string)
}

// backupMethods returns a constructor for each database.
func backupMethods(t *testing.T) map[string]func(t *testing.T) backupMethod {
	t.Helper()
	backup := func(t *testing.T, p *program, to string) { p.must(t, "backup", to) }
	return map[string]func(t *testing.T) backupMethod{
		"sqlite": func(t *testing.T) backupMethod {
			path := filepath.Join(t.TempDir(), "x.db")
			return backupMethod{"sqlite:" + path, backup, func(t *testing.T, from string) {
				content, err := os.ReadFile(from)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = os.Remove(path+"-wal"), os.Remove(path+"-shm")
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}}
		},
		"postgres": func(t *testing.T) backupMethod {
			c := rig.NewCluster(t)
			c.Exec(t, "CREATE DATABASE cardmint")
			url := c.URL("cardmint")
			return backupMethod{url, backup, func(t *testing.T, from string) {
				c.Exec(t, "DROP DATABASE cardmint WITH (FORCE)")
				c.Exec(t, "CREATE DATABASE cardmint")
				if out, err := exec.Command("pg_restore", "--no-owner", "--dbname", url, from).CombinedOutput(); err != nil {
					t.Fatalf("pg_restore: %v\n%s", err, out)
				}
			}}
		},
	}
}
