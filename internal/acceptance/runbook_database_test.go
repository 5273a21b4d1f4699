package acceptance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// installVersion replaces the program of the host.
func (h *host) installVersion(path string) {
	h.Helper()
	link := filepath.Join(h.dir, "bin", programName)
	must(h, os.Remove(link))
	must(h, os.Symlink(path, link))
}

func (h *host) upgrade() {
	const up, back, seal = "What to do", "Going back", "Sealing the tokens of earlier releases"
	now, err := os.Readlink(filepath.Join(h.dir, "bin", programName))
	must(h, err)
	release := buildPrevious(h.T)
	h.start() // migrates the database, because migrations may change until the first release
	h.service().removeSeals(h)
	h.installVersion(release)
	if out, code := h.shell("systemctl restart cardmint"); code != 0 {
		h.Fatal(out)
	}
	card := sellCard(h.T, h.client())
	h.installVersion(now) // before the first release, the previous version may lack the backup command
	wantOutput(h.T, h.run(up), "wrote ")
	h.run(up)
	h.awaitReady()
	h.runUntil(`"status":"ready"`, up)
	if got, err := h.client().GetCard(h.Context(), card.UUID); err != nil || got.Credentials != card.Credentials {
		h.Errorf("%+v, %v", got, err)
	}
	wantOutput(h.T, h.run(up), "everything agrees")

	h.installVersion(release)
	h.run(back)
	h.awaitReady()
	sellCard(h.T, h.client())
	wantOutput(h.T, h.run(back), "everything agrees")

	h.installVersion(now)
	if out, code := h.shell("systemctl restart cardmint"); code != 0 {
		h.Fatal(out)
	}
	h.awaitReady()
	h.run(seal)
	wantOutput(h.T, h.run(seal), "action=tokens_sealed")
	h.runUntil(`"status":"ready"`, seal)
	sellCard(h.T, h.client())
}

// postgresql adds a unit for a server of the rig. Clients of the user postgres
// connect to it.
func (h *host) postgresql(c *rig.Cluster) {
	h.Helper()
	host, port, _ := strings.Cut(c.Host(), ":")
	h.env = append(h.env, "PGHOST="+host, "PGPORT="+port, "PGUSER=postgres")
	h.unit("postgresql", c.Process, func() *rig.Process {
		c.Start(h)
		return c.Process
	})
	h.stops["postgresql"] = c.Stop // a fast shutdown, as Debian's
}

func (h *host) failover() {
	const steps = "With one standby, by hand"
	primary := rig.NewCluster(h)
	standby := primary.Standby(h, "second")
	h.postgresql(primary)
	h.setVariable("CARDMINT_DATABASE_URL", "postgres://postgres@"+primary.Host()+","+standby.Host()+"/postgres?sslmode=disable")
	h.start()
	card := sellCard(h.T, h.client())
	awaitReplay(h, primary)
	h.run(steps)
	h.awaitNotReady("database")
	h.postgresql(standby)
	wantOutput(h.T, h.run(steps), "t")
	h.run(steps)
	h.awaitReady()
	h.awaitEpochs(2)
	h.run(steps)
	wantOutput(h.T, h.run(steps), "no transfer waits", "everything agrees")
	h.runUntil(`"status":"ready"`, steps)
	if got, err := h.client().GetCard(h.Context(), card.UUID); err != nil || got.Credentials != card.Credentials {
		h.Errorf("%+v, %v", got, err)
	}
	sellCard(h.T, h.client())
}

func (h *host) diskFull() {
	const before, steps = "Before it happens", "What to do"
	disk := filepath.Join(h.dir, "var/lib/cardmint")
	small := exec.Command("mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "disk", disk).Run() == nil
	if small {
		h.Cleanup(func() { _ = exec.Command("umount", "-l", disk).Run() })
	} else {
		h.Log("can't mount a file system: the commands run without a full disk")
	}
	postgres := rig.NewCluster(h)
	postgres.Exec(h, "SELECT pg_create_physical_replication_slot('gone', true)")
	h.postgresql(postgres)
	h.start()
	h.run(before, "1G", "8M")
	if small {
		h.fillDisk(filepath.Join(disk, "backup"))
		h.awaitLog("disk is full")
	}
	wantOutput(h.T, h.run(steps), disk)
	h.run(steps)
	h.run(steps)
	wantOutput(h.T, h.run(steps), "gone|f|")
	h.run(steps, "SLOT", "gone")
	h.run(steps)
	postgres.Stop()
	h.run(steps)
	h.awaitReady()
	c := h.order(50)
	h.pay(c, "1")
	h.awaitPayments(map[uuid.UUID]client.PaymentState{c.UUID: client.PaymentStatePaid})
	wantOutput(h.T, h.runUntil(`"status":"ready"`, steps), "everything agrees")
}

// fillDisk fills a disk with a file, and orders cards until an order is
// refused.
func (h *host) fillDisk(path string) {
	h.Helper()
	_ = exec.Command("dd", "if=/dev/zero", "of="+path, "bs=4096").Run()
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); {
		if out, _ := h.shell(`curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer ` + h.token +
			`' -H 'Content-Type: application/json' --data '{"usd_amount":50,"currency":"monero"}' http://127.0.0.1:8080/api/cards`); out == "503" {
			return
		}
	}
	h.Fatal("orders are accepted although the disk is full")
}
