//go:build drill

package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// Drills have a database go back in time, exist twice or be away, with the binary, real PostgreSQL and real Monero.
var (
	drillRounds = flag.Int("drill-rounds", 1, "repeat each drill so often")
	drillLeast  = flag.Duration("drill-least", time.Second, "restore backups at least so old")
	drillAge    = flag.Duration("drill-age", 8*time.Second, "restore backups at most so old")
	drillSeed   = flag.Uint64("drill-seed", 0, "choose by this seed; 0 for one from the clock")
)

// drill is a service under load, and what its customers were told.
type drill struct {
	t       *testing.T
	random  *rand.Rand
	net     *rig.MoneroNet
	wallet  *rig.MoneroWallet
	program *program
	token   string
	servers []*server
	sold    map[string]uuid.UUID // cards by their addresses, whatever the database knows of them
	seqs    map[int64]uuid.UUID  // events by their numbers
}

// newDrill makes a wallet for the drill alone.
func newDrill(t *testing.T, databaseURL string) *drill {
	t.Helper()
	seed := *drillSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-drill-seed %d", seed)
	d := &drill{t: t, random: rand.New(rand.NewPCG(seed, 0)), net: rig.Monero(t), sold: map[string]uuid.UUID{}, seqs: map[int64]uuid.UUID{}}
	d.wallet = d.net.NewWallet(t, "", "")
	d.program = newProgram(t, databaseURL)
	d.program.env = append(d.program.env, "CARDMINT_RATE=monero=150", "CARDMINT_WEBHOOK_INSECURE=true", "CARDMINT_MONERO_CONFIRMATIONS=2",
		"CARDMINT_ADDRESS_POOL=50", "CARDMINT_MONERO_DAEMON_URL="+d.net.DaemonURL, "CARDMINT_MONERO_WALLET_URL="+d.wallet.URL)
	d.token = d.program.account(t)
	return d
}

// age returns how old a backup is to be.
func (d *drill) age() time.Duration {
	return *drillLeast + time.Duration(d.random.Int64N(max(1, int64(*drillAge-*drillLeast))))
}

// start starts processes with these roles, and returns once all are ready.
func (d *drill) start(roles ...string) {
	d.t.Helper()
	d.servers = nil
	for _, role := range roles {
		d.servers = append(d.servers, d.program.serve(d.t, "serve", "--role", role))
	}
}

// crash kills processes.
func (d *drill) crash() {
	for _, s := range d.servers {
		s.Kill()
	}
	d.servers = nil
}

// order asks the servers in turn for a card. It returns nil if none could be sold.
func (d *drill) order(s *server) *client.Card {
	d.t.Helper()
	c, err := client.New(s.url, d.token, client.WithRetry(1, time.Minute))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 25*time.Second)
	defer cancel()
	card, err := c.CreateCard(ctx, client.CreateCardRequest{USDAmount: decimal.RequireFromString("150"), Currency: "monero"})
	var refused *client.Error
	if err != nil && (!errors.As(err, &refused) || refused.Status == http.StatusServiceUnavailable) {
		return nil
	}
	if err != nil {
		d.t.Fatal(err)
	}
	if other, twice := d.sold[card.Payment.Address]; twice {
		d.t.Errorf("address %s was handed out to %s and to %s", card.Payment.Address, other, card.UUID)
	}
	d.sold[card.Payment.Address] = card.UUID
	return card
}

// sell sells n cards, however long it takes, and returns them.
func (d *drill) sell(n int) []*client.Card {
	d.t.Helper()
	var cards []*client.Card
	for deadline := time.Now().Add(3 * time.Minute); len(cards) < n; {
		if c := d.order(d.servers[len(cards)%len(d.servers)]); c != nil {
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

// sellFor sells cards for a time, and returns them.
func (d *drill) sellFor(long time.Duration) []*client.Card {
	d.t.Helper()
	var cards []*client.Card
	for until := time.Now().Add(long); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if c := d.order(d.servers[d.random.IntN(len(d.servers))]); c != nil {
			cards = append(cards, c)
		}
	}
	return cards
}

// pay pays for a card that the database may have forgotten.
func (d *drill) pay(c *client.Card) (txID string) {
	d.t.Helper()
	txID = d.net.Pay(d.t, c.Payment.Address, c.Payment.Amount.Mul(piconero).IntPart())
	d.net.Confirm(d.t, txID, 2)
	return txID
}

// follow reads the feed, and fails if a number has two meanings, or if it jumps without a reset.
func (d *drill) follow() {
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
			d.t.Errorf("event %d is %s, and was %s", e.Seq, e.ID, id)
		}
		d.seqs[e.Seq], last = e.ID, e.Seq
	}
}

// lists waits until the operator's list of money that belongs to no card has the transactions.
func (d *drill) lists(txIDs ...string) {
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

// generated waits until a card is issued.
func (d *drill) generated(c *client.Card) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	if _, err := newClient(d.t, d.servers[0].url, d.token).WaitForCard(ctx, c.UUID); err != nil {
		d.t.Errorf("card %s: %v", c.UUID, err)
	}
}

// agrees compares the books.
func (d *drill) agrees() {
	d.t.Helper()
	stdout, stderr, code := d.program.run("reconcile")
	if code != 0 {
		d.t.Errorf("reconcile: exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

// readiness returns what a process says of itself.
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

// keeper saves and restores a database as operators do who don't know this program.
type keeper struct {
	url     string
	save    func(t *testing.T, p *program, to string)
	restore func(t *testing.T, from string)
}

// keepers returns a keeper for each database.
func keepers(t *testing.T) map[string]func(t *testing.T) keeper {
	t.Helper()
	backup := func(t *testing.T, p *program, to string) { p.must(t, "backup", to) }
	return map[string]func(t *testing.T) keeper{
		"sqlite": func(t *testing.T) keeper {
			path := filepath.Join(t.TempDir(), "x.db")
			return keeper{"sqlite:" + path, backup, func(t *testing.T, from string) {
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
		"postgres": func(t *testing.T) keeper {
			c := rig.NewCluster(t)
			c.Exec(t, "CREATE DATABASE cardmint")
			url := c.URL("cardmint")
			return keeper{url, backup, func(t *testing.T, from string) {
				c.Exec(t, "DROP DATABASE cardmint WITH (FORCE)")
				c.Exec(t, "CREATE DATABASE cardmint")
				if out, err := exec.Command("pg_restore", "--no-owner", "--dbname", url, from).CombinedOutput(); err != nil {
					t.Fatalf("pg_restore: %v\n%s", err, out)
				}
			}}
		},
	}
}

// TestDrill_Restore restores backups of random ages, with or without the wallet's files of the same moment, while customers order. No
// address is handed out twice, no number of an event has two meanings, and the payments of forgotten orders are listed.
func TestDrill_Restore(t *testing.T) {
	for name, open := range keepers(t) {
		t.Run(name, func(t *testing.T) {
			k := open(t)
			d := newDrill(t, k.url)
			d.start("all")
			for round := range *drillRounds * 2 {
				d.sell(5)
				file := filepath.Join(t.TempDir(), "backup")
				k.save(t, d.program, file)
				wallet := d.wallet.Save(t)
				age := d.age()
				lost := d.sellFor(age)
				var paid []string
				if len(lost) > 0 {
					paid = append(paid, d.pay(lost[len(lost)-1]))
					d.generated(lost[len(lost)-1]) // its events will be forgotten too
				}
				d.follow()
				d.crash()
				k.restore(t, file)
				if both := round%2 == 0; both {
					d.wallet.Restore(t, wallet)
				}
				d.start("all")
				d.sell(min(len(lost), 500) + 70) // more would take as long as they took
				d.lists(paid...)
				d.follow()
				t.Logf("round %d: %s old, %d orders forgotten, %d addresses in all", round, age.Round(time.Millisecond), len(lost), len(d.sold))
			}
			card := d.sell(1)[0]
			d.pay(card)
			d.generated(card)
			d.agrees()
		})
	}
}

// TestDrill_TheWorkerIsDead restores a dump below APIs that live, while no worker does. They sell no address that may be in use.
func TestDrill_TheWorkerIsDead(t *testing.T) {
	k := keepers(t)["postgres"](t)
	d := newDrill(t, k.url)
	d.start("worker", "api", "api")
	worker := d.servers[0]
	d.servers = d.servers[1:]
	d.sell(10)
	file := filepath.Join(t.TempDir(), "backup")
	k.save(t, d.program, file)
	d.sell(60)
	worker.Kill()
	lost := d.sellFor(5 * time.Second) // from memory
	for _, s := range d.servers {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if status, body := readiness(t, s); status == http.StatusServiceUnavailable && strings.Contains(body, "monero") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("an API is ready although nobody watches")
			}
		}
	}
	k.restore(t, file)
	blind := d.sellFor(5 * time.Second)
	t.Logf("%d orders without a worker, %d after the restore", len(lost), len(blind))
	apis := d.servers
	d.start("worker")
	d.servers = append(apis, d.servers...)[:2]
	d.sell(100)
	d.agrees()
}

// TestDrill_ColdStart kills the only worker and starts it again: what that costs, and how long it takes to sell a card.
func TestDrill_ColdStart(t *testing.T) {
	k := keepers(t)["postgres"](t)
	d := newDrill(t, k.url)
	d.start("all")
	d.sell(20)
	db := rig.OpenSQL(t, k.url)
	next := func() (position int64) {
		t.Helper()
		if err := db.QueryRow("SELECT next_position FROM address_pools").Scan(&position); err != nil {
			t.Fatal(err)
		}
		return position
	}
	for range 2 {
		before := next()
		d.crash()
		started := time.Now()
		d.start("all")
		d.sell(1)
		took, cost := time.Since(started), next()-before
		t.Logf("the first card %s after the start, at the cost of %d addresses", took.Round(time.Millisecond), cost)
		if cost > 400 {
			t.Errorf("%d addresses", cost)
		}
		if took > 10*time.Second { // five on a machine that has nothing else to do
			t.Errorf("the first card was sold after %s", took)
		}
	}
}

// standbyOf makes a standby, and returns what cuts it off from its primary.
func standbyOf(t *testing.T, primary *rig.Cluster) (standby *rig.Cluster, cut func()) {
	t.Helper()
	standby = primary.Standby(t, "second")
	return standby, func() {
		standby.Exec(t, "ALTER SYSTEM SET primary_conninfo = ''")
		standby.Exec(t, "SELECT pg_reload_conf()")
		for deadline := time.Now().Add(10 * time.Second); standby.Value(t, "SELECT count(*) FROM pg_stat_wal_receiver") != "0"; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the standby still receives")
			}
		}
	}
}

// TestDrill_Promotion promotes a standby that lags behind. The processes live on, and connect to it.
func TestDrill_Promotion(t *testing.T) {
	for range *drillRounds {
		primary := rig.NewCluster(t)
		standby, cut := standbyOf(t, primary)
		d := newDrill(t, fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable", primary.Host(), standby.Host()))
		d.start("all", "api", "api")
		d.sell(20)
		time.Sleep(time.Second)
		cut()
		age := d.age()
		lost := d.sellFor(age)
		var paid []string
		if len(lost) > 0 {
			paid = append(paid, d.pay(lost[len(lost)-1]))
			d.generated(lost[len(lost)-1])
		}
		d.follow()
		primary.Stop()
		standby.Promote(t)
		started := time.Now()
		d.sell(1)
		t.Logf("%s behind, %d orders forgotten, the next one sold after %s", age.Round(time.Millisecond), len(lost), time.Since(started).Round(time.Millisecond))
		d.sell(len(lost) + 60)
		d.program.env = append(d.program.env, "CARDMINT_DATABASE_URL="+standby.URL("postgres"))
		d.lists(paid...)
		d.follow()
		card := d.sell(1)[0]
		d.pay(card)
		d.generated(card)
		d.agrees()
	}
}

// TestDrill_TwoDatabases promotes a standby while the old primary lives on with a worker of its own, and both with the same wallet. Both
// stop, until an operator claims the wallet for one of them.
func TestDrill_TwoDatabases(t *testing.T) {
	primary := rig.NewCluster(t)
	standby, _ := standbyOf(t, primary)
	d := newDrill(t, primary.URL("postgres"))
	d.start("all")
	old := d.servers[0]
	both := d.sell(10)
	time.Sleep(time.Second)
	standby.Promote(t)
	other := &program{path: d.program.path, env: append(append([]string{}, d.program.env...), "CARDMINT_DATABASE_URL="+standby.URL("postgres"))}
	cmd := exec.Command(other.path, "serve")
	cmd.Env = other.env
	late := &server{Process: rig.Start(t, cmd)}
	stopped := func(s *server) {
		t.Helper()
		late := time.Now().Add(30 * time.Second)
		for ; ; time.Sleep(100 * time.Millisecond) {
			if s.url == "" {
				if found := urlLine.FindStringSubmatch(s.Output()); found != nil {
					s.url = found[1] + found[2]
				}
			} else if status, body := readiness(t, s); status == http.StatusServiceUnavailable && strings.Contains(body, "wallet claim") {
				return
			}
			if time.Now().After(late) {
				t.Fatalf("it does not say that another database uses the wallet:\n%s", s.Output())
			}
		}
	}
	started := time.Now()
	stopped(old)
	stopped(late)
	t.Logf("both stopped %s after the second one was started", time.Since(started).Round(time.Millisecond))
	d.net.Confirm(t, d.net.Pay(t, both[0].Payment.Address, both[0].Payment.Amount.Mul(piconero).IntPart()), 4)
	time.Sleep(3 * time.Second)
	for _, s := range []*server{old, late} {
		if c, err := newClient(t, s.url, d.token).GetCard(t.Context(), both[0].UUID); err != nil || c.Status != client.CardStatusAwaitingPayment {
			t.Errorf("issued meanwhile: %+v, %v", c, err)
		}
		if c := d.order(s); c != nil && s == late {
			t.Errorf("sold %s meanwhile", c.UUID)
		}
	}
	wantOutput(t, other.must(t, "wallet", "claim"), "another database", "--yes")
	wantOutput(t, other.must(t, "wallet", "claim", "--yes"), "claimed")
	d.program, d.servers = other, []*server{late}
	d.generated(both[0])
	d.sell(60)
	stopped(old)
	if c, err := newClient(t, old.url, d.token).GetCard(t.Context(), both[0].UUID); err != nil || c.Status != client.CardStatusAwaitingPayment {
		t.Errorf("issued in both: %+v, %v", c, err)
	}
	d.follow()
	d.agrees()
	old.Signal(t, syscall.SIGTERM)
}

// TestDrill_AWorkerDies ends the worker that watches, with a payment on its way, by SIGKILL and by SIGTERM. The one that stood by takes
// over, in the same epoch.
func TestDrill_AWorkerDies(t *testing.T) {
	k := keepers(t)["postgres"](t)
	d := newDrill(t, k.url)
	d.start("worker", "all")
	first, second := d.servers[0], d.servers[1]
	d.servers = d.servers[1:]
	db := rig.OpenSQL(t, k.url)
	epoch := func() (n int64) {
		t.Helper()
		if err := db.QueryRow("SELECT epoch FROM leases").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	d.sell(5)
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		before := epoch()
		time.Sleep(3 * time.Second) // for the second one to see the marks
		card := d.sell(1)[0]
		txID := d.net.Pay(t, card.Payment.Address, card.Payment.Amount.Mul(piconero).IntPart())
		first.Signal(t, how)
		ended := time.Now()
		d.net.Confirm(t, txID, 2)
		d.generated(card)
		took := time.Since(ended)
		t.Logf("%s: the card was issued %s later", how, took.Round(time.Millisecond))
		if took > 15*time.Second { // ten on a machine that has nothing else to do
			t.Errorf("the card was issued %s after the worker had ended", took)
		}
		if now := epoch(); now != before {
			t.Errorf("epoch %d became %d", before, now)
		}
		if how == syscall.SIGKILL { // the second one watches now, and the next one stands by
			first = second
			d.start("all")
		}
	}
}
