//go:build drill

package acceptance_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// TestDrill_RestoredBackup_SellsNoAddressTwice restores backups of random ages
// while customers order, in every second round together with the wallet's
// files. No address may be sold twice, no event number may be reused, and the
// payments of lost orders must be listed.
func TestDrill_RestoredBackup_SellsNoAddressTwice(t *testing.T) {
	for name, open := range backupMethods(t) {
		t.Run(name, func(t *testing.T) {
			k := open(t)
			d := newDrill(t, k.url)
			d.start("all")
			for round := range *drillRounds * 2 {
				d.sell(5)
				file := filepath.Join(t.TempDir(), "backup")
				k.save(t, d.program, file)
				wallet := d.wallet.Save(t)
				age := d.backupAge()
				lost := d.sellFor(age)
				var paid []string
				if len(lost) > 0 {
					paid = append(paid, d.pay(lost[len(lost)-1]))
					d.awaitIssued(lost[len(lost)-1]) // the restore also loses its events
				}
				d.checkFeed()
				d.crash()
				k.restore(t, file)
				if both := round%2 == 0; both {
					d.wallet.Restore(t, wallet)
				}
				d.start("all")
				d.sell(min(len(lost), 500) + 70) // more would take too long
				d.awaitUnattributed(paid...)
				d.checkFeed()
				t.Logf("round %d: backup of %s ago, %d orders lost, %d addresses in total", round, age.Round(time.Millisecond), len(lost),
					len(d.sold))
			}
			card := d.sell(1)[0]
			d.pay(card)
			d.awaitIssued(card)
			d.checkBooks()
		})
	}
}

// TestDrill_RestoreWithoutWorker_SellsNoUsedAddress restores a dump while APIs
// run but no worker does. They may sell no address that was sold before.
func TestDrill_RestoreWithoutWorker_SellsNoUsedAddress(t *testing.T) {
	k := backupMethods(t)["postgres"](t)
	d := newDrill(t, k.url)
	d.start("worker", "api", "api")
	worker := d.servers[0]
	d.servers = d.servers[1:]
	d.sell(10)
	file := filepath.Join(t.TempDir(), "backup")
	k.save(t, d.program, file)
	d.sell(60)
	worker.Kill()
	lost := d.sellFor(5 * time.Second) // from addresses that the APIs hold
	for _, s := range d.servers {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if status, body := readiness(t, s); status == http.StatusServiceUnavailable && strings.Contains(body, "monero") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("an API is ready although no worker runs")
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
	d.checkBooks()
}

// TestDrill_ColdStart_SellsWithinSeconds kills and restarts the only worker,
// and limits the time until the next sale and the number of abandoned
// addresses.
func TestDrill_ColdStart_SellsWithinSeconds(t *testing.T) {
	k := backupMethods(t)["postgres"](t)
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
		t.Logf("first card sold %s after the start, %d addresses used", took.Round(time.Millisecond), cost)
		if cost > 400 {
			t.Errorf("a restart used %d addresses, want at most 400", cost)
		}
		if took > 10*time.Second { // five seconds on an idle machine
			t.Errorf("the first card was sold after %s", took)
		}
	}
}

// newStandby returns a standby, and a function that disconnects it from its
// primary.
func newStandby(t *testing.T, primary *rig.Cluster) (standby *rig.Cluster, cut func()) {
	t.Helper()
	standby = primary.Standby(t, "second")
	return standby, func() {
		standby.Exec(t, "ALTER SYSTEM SET primary_conninfo = ''")
		standby.Exec(t, "SELECT pg_reload_conf()")
		await(t, time.Minute, "the standby to disconnect", func() bool {
			return standby.Value(t, "SELECT count(*) FROM pg_stat_wal_receiver") == "0"
		})
	}
}

// TestDrill_PromotedStandby_SellsNoAddressTwice promotes a standby that lags.
// The processes keep running and connect to it.
func TestDrill_PromotedStandby_SellsNoAddressTwice(t *testing.T) {
	for round := range *drillRounds {
		t.Run(fmt.Sprint(round), promoteStandby)
	}
}

func promoteStandby(t *testing.T) {
	t.Helper()
	primary := rig.NewCluster(t)
	standby, cut := newStandby(t, primary)
	d := newDrill(t, fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable", primary.Host(), standby.Host()))
	d.start("all", "api", "api")
	d.sell(20)
	awaitReplay(t, primary)
	cut()
	age := d.backupAge()
	lost := d.sellFor(age)
	var paid []string
	if len(lost) > 0 {
		paid = append(paid, d.pay(lost[len(lost)-1]))
		d.awaitIssued(lost[len(lost)-1])
	}
	d.checkFeed()
	primary.Stop()
	standby.Promote(t)
	started := time.Now()
	d.sell(1)
	t.Logf("standby %s behind, %d orders lost, next card sold after %s", age.Round(time.Millisecond), len(lost),
		time.Since(started).Round(time.Millisecond))
	d.sell(min(len(lost), 500) + 60)
	d.program.env = append(d.program.env, "CARDMINT_DATABASE_URL="+standby.URL("postgres"))
	d.awaitUnattributed(paid...)
	d.checkFeed()
	card := d.sell(1)[0]
	d.pay(card)
	d.awaitIssued(card)
	d.checkBooks()
}

// TestDrill_TwoDatabases_StopUntilWalletIsClaimed promotes a standby while the
// old primary and its worker keep running, both with the same wallet. Both must
// stop selling until an operator claims the wallet for one of them.
func TestDrill_TwoDatabases_StopUntilWalletIsClaimed(t *testing.T) {
	primary := rig.NewCluster(t)
	standby, _ := newStandby(t, primary)
	d := newDrill(t, primary.URL("postgres"))
	d.start("all")
	old := d.servers[0]
	both := d.sell(10)
	awaitReplay(t, primary)
	standby.Promote(t)
	other := &program{path: d.program.path,
		env: append(append([]string{}, d.program.env...), "CARDMINT_DATABASE_URL="+standby.URL("postgres"))}
	cmd := exec.Command(other.path, "serve")
	cmd.Env = other.env
	second := &server{Process: rig.Start(t, cmd)}
	awaitStopped := func(s *server) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if s.url == "" {
				if found := urlLine.FindStringSubmatch(s.Output()); found != nil {
					s.url = found[1] + found[2]
				}
			} else if status, body := readiness(t, s); status == http.StatusServiceUnavailable &&
				strings.Contains(body, "wallet claim") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("/readyz does not report the conflict:\n%s", s.Output())
			}
		}
	}
	started := time.Now()
	awaitStopped(old)
	awaitStopped(second)
	t.Logf("both stopped selling %s after the second process started", time.Since(started).Round(time.Millisecond))
	d.net.Confirm(t, d.net.Pay(t, both[0].Payment.Address, both[0].Payment.Amount.Mul(piconero).IntPart()), 4)
	time.Sleep(3 * time.Second) // neither may issue the card during several passes
	for _, s := range []*server{old, second} {
		if c, err := newClient(t, s.url, d.token).GetCard(t.Context(), both[0].UUID); err != nil ||
			c.Status != client.CardStatusAwaitingPayment {
			t.Errorf("issued without a claim: %+v, %v", c, err)
		}
		if c := d.tryOrder(s); c != nil && s == second {
			t.Errorf("sold card %s without a claim", c.UUID)
		}
	}
	wantOutput(t, other.must(t, "wallet", "claim"), "another database", "--yes")
	wantOutput(t, other.must(t, "wallet", "claim", "--yes"), "claimed")
	d.program, d.servers = other, []*server{second}
	d.awaitIssued(both[0])
	d.sell(60)
	awaitStopped(old)
	if c, err := newClient(t, old.url, d.token).GetCard(t.Context(), both[0].UUID); err != nil ||
		c.Status != client.CardStatusAwaitingPayment {
		t.Errorf("issued in both: %+v, %v", c, err)
	}
	d.checkFeed()
	d.checkBooks()
	old.Signal(t, syscall.SIGTERM)
}

// TestDrill_WorkerDies_StandbyKeepsEpoch ends the active worker by SIGKILL and
// by SIGTERM while a payment is under way. The standby worker takes over in the
// same epoch.
func TestDrill_WorkerDies_StandbyKeepsEpoch(t *testing.T) {
	k := backupMethods(t)["postgres"](t)
	d := newDrill(t, k.url)
	d.start("worker", "all")
	first, second := d.servers[0], d.servers[1]
	d.servers = d.servers[1:]
	db := rig.OpenSQL(t, k.url)
	epoch := func() (n int64) {
		t.Helper()
		if err := db.QueryRow("SELECT epoch FROM leases WHERE epoch IS NOT NULL").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	d.sell(5)
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		before := epoch()
		// A process sells addresses only after it has seen the mark advance.
		// Therefore this sale proves that the standby can continue the epoch.
		card := d.sell(1)[0]
		txID := d.net.Pay(t, card.Payment.Address, card.Payment.Amount.Mul(piconero).IntPart())
		first.Signal(t, how)
		ended := time.Now()
		d.net.Confirm(t, txID, 2)
		d.awaitIssued(card)
		took := time.Since(ended)
		t.Logf("%s: card issued %s later", how, took.Round(time.Millisecond))
		if took > 15*time.Second { // ten seconds on an idle machine
			t.Errorf("the card was issued %s after the worker had ended", took)
		}
		if now := epoch(); now != before {
			t.Errorf("epoch %d changed to %d", before, now)
		}
		if how == syscall.SIGKILL { // the second process is active now; start a new standby
			first = second
			d.start("all")
		}
	}
}
