//go:build linux && drill

package acceptance_test

import (
	"os"
	"testing"
	"time"
)

const backupPage = "operate/backup-pgbackrest.md"

// TestHA_PointInTimeRestore_SellsNoAddressTwice restores a cluster with
// pgBackRest by the documented commands, with real Monero. No address may be
// sold twice, no event number may be reused, and the payments of lost orders
// must be listed.
func TestHA_PointInTimeRestore_SellsNoAddressTwice(t *testing.T) {
	h := newHACluster(t)
	h.openRepository()
	d := newDrill(t, h.documentedURL())
	d.start("all", "api")
	d.sell(5)
	backup := h.leader().Command(h.files, h.script(backupPage, "The first backup"))
	ended := make(chan error, 1)
	go func() {
		out, err := backup.CombinedOutput()
		t.Logf("backup under load:\n%s", out)
		ended <- err
	}()
	d.sellFor(3 * time.Second)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for round := range *haRounds {
		d.sellFor(2 * time.Second) // pgBackRest needs a backup that ended in an earlier second than the target
		kept := d.sell(5)
		target := h.leader().Run(t,
			`cd / && runuser -u postgres -- psql -Atc "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'"`)
		time.Sleep(10 * time.Millisecond)
		lost := d.sell(5)
		age := d.backupAge()
		lost = append(lost, d.sellFor(age)...)
		paid := []string{d.pay(lost[len(lost)-1])}
		d.awaitIssued(lost[len(lost)-1]) // the restore also loses its events
		d.checkFeed()
		d.crash()
		took := h.restore(target)
		d.start("all", "api")
		started := time.Now()
		d.sell(min(len(lost), 500) + 70)
		d.awaitUnattributed(paid...)
		d.checkFeed()
		for _, card := range kept {
			if _, err := newClient(t, d.servers[0].url, d.token).GetCard(t.Context(), card.UUID); err != nil {
				t.Errorf("a card ordered before the target time is missing: %v", err)
			}
		}
		if _, err := newClient(t, d.servers[0].url, d.token).GetCard(t.Context(), lost[0].UUID); err == nil {
			t.Error("a card ordered after the target time exists: nothing was restored")
		}
		t.Logf("round %d: restored in %s, %s after the target time; %d orders lost, %d addresses in total; as many cards sold again within %s", round,
			took.Round(time.Second), age.Round(time.Millisecond), len(lost), len(d.sold),
			time.Since(started).Round(time.Millisecond))
	}
	h.follow(h.leader(), backupPage, "Every day")
	h.follow(h.memberWithRole("replica"), backupPage, "Every day")
	h.allRan(backupPage)
	card := d.sell(1)[0]
	d.pay(card)
	d.awaitIssued(card)
	d.checkBooks()
}

// openRepository installs pgBackRest on the machines, with a shared repository.
func (h *haCluster) openRepository() {
	h.t.Helper()
	shared, err := os.MkdirTemp("", "repository")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = os.RemoveAll(shared) })
	h.follow(h.nodes[0], backupPage, "A password")
	for _, m := range h.nodes {
		m.Run(h.t, "chown postgres:postgres "+shared+" && mount --bind "+shared+" /var/lib/pgbackrest")
		h.follow(m, backupPage, "The database machines")
	}
}

// restore restores the cluster to a point in time, and returns the time until
// all machines have joined again.
func (h *haCluster) restore(target string) time.Duration {
	h.t.Helper()
	begun := time.Now()
	first := h.leader()
	for _, m := range h.nodes {
		h.follow(m, backupPage, "Stop the cluster")
	}
	h.follow(first, backupPage, "Restore one machine", "2026-11-22 03:00:00+00", target)
	for h.memberWithRole("leader") != first {
		if time.Since(begun) > 3*time.Minute {
			h.t.Fatal("no leader after the restore")
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, m := range h.nodes {
		if m != first {
			h.follow(m, backupPage, "Copy it to the others")
		}
	}
	h.awaitHealthy(2 * time.Minute)
	return time.Since(begun)
}
