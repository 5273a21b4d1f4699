//go:build linux && drill

package acceptance_test

import (
	"flag"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

var haRounds = flag.Int("ha-rounds", 1, "how often TestHA causes each fault")

// TestHA_LeaderFails_LosesNoAcknowledgedOrder fails the leader of a documented
// cluster in several ways under load: with processes that connect through
// HAProxy, through PgBouncer, and to all hosts. No acknowledged order may be
// lost, no address or card may be sold twice, and the old leader must rejoin.
func TestHA_LeaderFails_LosesNoAcknowledgedOrder(t *testing.T) {
	h := newHACluster(t)
	all := fmt.Sprintf("%s,%s,%s", h.nodes[0].Address, h.nodes[1].Address, h.nodes[2].Address)
	h.follow(h.app, haPage, "PgBouncer")
	var table []string
	for _, way := range []struct {
		name, url string
		faults    []haFault
	}{
		{"HAProxy", h.documentedURL(), h.faults()},
		{"hosts", h.url(all, "sslmode=verify-full"), h.faults()},
		{"PgBouncer", h.url(h.localize("127.0.0.1:6432"), "sslmode=disable"), h.faults()[:1]},
	} {
		t.Run(way.name, func(t *testing.T) {
			h.t = t
			s := newHAService(t, h, way.url)
			for round := range *haRounds {
				for _, f := range way.faults {
					table = append(table, fmt.Sprintf("| %-9s | %s |", way.name, s.fail(round, f)))
				}
			}
			s.finish()
		})
		h.t = t
	}
	h.maintain()
	h.allRan(haPage)
	t.Log("| connection | fault | writes stopped | new leader after | not ready for | 503s | new epoch in metrics after | stop at return | healthy after |")
	for _, row := range table {
		t.Log(row)
	}
}

// maintain runs the documented commands for a healthy cluster.
func (h *haCluster) maintain() {
	h.t.Helper()
	h.follow(h.nodes[0], haPage, "A setting of PostgreSQL")
	h.awaitHealthy(2 * time.Minute)
	h.follow(h.nodes[0], haPage, "A standby that does not follow", "db2", h.memberWithRole("replica").Name)
	h.awaitHealthy(2 * time.Minute)
	h.follow(h.nodes[0], haPage, "Work on etcd, or on the network between the machines")
	h.awaitHealthy(2 * time.Minute)
}

// haFault is a failure of the leader and its repair.
type haFault struct {
	name       string
	begin, end func(leader *rig.Machine)
}

func (h *haCluster) faults() []haFault {
	return []haFault{
		{"killed", func(m *rig.Machine) { m.Signal(syscall.SIGKILL, "patroni", "postgres") },
			func(m *rig.Machine) { m.RunIn(h.t, h.files, prelude+"systemctl restart patroni") }},
		{"cut off", func(m *rig.Machine) { m.Cut(h.t) }, func(m *rig.Machine) { m.Restore(h.t) }},
		{"paused", func(m *rig.Machine) { m.Signal(syscall.SIGSTOP, "patroni", "postgres") },
			func(m *rig.Machine) { m.Signal(syscall.SIGCONT, "patroni", "postgres") }},
		{"switched", func(m *rig.Machine) { h.follow(m, haPage, "Switchover") }, func(*rig.Machine) {}},
	}
}

// fail causes the fault, waits until the cluster is healthy again, and returns a
// row of the table.
func (s *haService) fail(round int, f haFault) string {
	h, t := s.cluster, s.t
	t.Helper()
	h.awaitHealthy(2 * time.Minute)
	s.awaitReady()
	s.awaitSales(time.Now(), time.Minute)
	before, _ := s.awaitEpoch(0, time.Now())
	time.Sleep(3 * time.Second)
	old := h.leader()
	begun := time.Now()
	f.begin(old)
	leader := h.awaitLeader(old)
	led := time.Since(begun)
	s.awaitSales(time.Now(), 2*time.Minute)
	s.awaitReady()
	stopped := s.longestGap(begun)
	// Requests that were sent to the old leader may take their full timeout.
	if late := stopped - led; late > 30*time.Second {
		t.Errorf("%s: a process sold nothing for %s, although a new leader existed after %s", f.name, stopped, led)
	}
	repaired := time.Now()
	f.end(old)
	healthy := h.awaitHealthy(3 * time.Minute)
	s.awaitSales(time.Now(), time.Minute)
	_, shown := s.awaitEpoch(before, begun)
	refused := s.refused(begun)
	if refused == 0 {
		t.Errorf("%s: no metric counts refused requests", f.name)
	}
	notReady := s.notReady(begun)
	if notReady == 0 && stopped > 5*time.Second {
		t.Errorf("%s: all processes were ready, but none sold a card for %s", f.name, stopped)
	}
	row := fmt.Sprintf("%-9s | %5.1f s | %5.1f s | %5.1f s | %4.0f | %5.1f s | %5.1f s | %5.1f s", f.name,
		stopped.Seconds(), led.Seconds(), notReady.Seconds(), refused,
		shown.Seconds(), s.longestGap(repaired).Seconds(), healthy.Seconds())
	t.Logf("round %d, %s -> %s: %s", round, old.Name, leader.Name, row)
	return row
}

// awaitLeader waits until a machine other than old is the leader.
func (h *haCluster) awaitLeader(old *rig.Machine) *rig.Machine {
	h.t.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if leader := h.memberWithRole("leader", old); leader != nil && leader != old {
			return leader
		}
		if time.Since(begun) > 2*time.Minute {
			h.t.Fatal("no other leader")
		}
	}
}

// awaitEpoch waits until the metrics show an epoch above before. It returns the
// epoch and the time since since.
func (s *haService) awaitEpoch(before float64, since time.Time) (epoch float64, after time.Duration) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		s.mu.Lock()
		for _, samples := range s.samples {
			for _, now := range samples {
				if e := now.values["cardmint_epoch"]; e > before && now.at.After(since) &&
					(after == 0 || now.at.Sub(since) < after) {
					epoch, after = e, now.at.Sub(since)
				}
			}
		}
		s.mu.Unlock()
		if after > 0 {
			return epoch, after
		}
	}
	s.t.Fatalf("no metric shows an epoch above %.0f", before)
	return 0, 0
}

// refused returns the number of responses with status 503 after since, from the
// metrics.
func (s *haService) refused(since time.Time) (n float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, samples := range s.samples {
		first, last := -1.0, 0.0
		for _, now := range samples {
			if now.scraped && now.at.After(since) {
				if first < 0 {
					first = now.values["refusals"]
				}
				last = now.values["refusals"]
			}
		}
		n += last - max(first, 0)
	}
	return n
}

// notReady returns the longest time that a replica was not ready after since.
func (s *haService) notReady(since time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, samples := range s.samples {
		sum, last := time.Duration(0), since
		for _, now := range samples {
			if now.at.After(since) {
				if !now.ready {
					sum += now.at.Sub(last)
				}
				last = now.at
			}
		}
		longest = max(longest, sum)
	}
	return longest
}
