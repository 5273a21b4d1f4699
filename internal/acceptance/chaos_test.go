//go:build drill

package acceptance_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

var (
	chaosFor  = flag.Duration("chaos", 0, "how long TestChaos causes faults; 0 for about fifteen seconds")
	chaosSeed = flag.Uint64("chaos-seed", 0, "seed of the faults of TestChaos; 0 for a random one")
)

// TestChaos runs three replicas on a primary with a synchronous standby, and a
// supplier in a separate process. A workload orders, pays and reads cards,
// follows the feed and receives webhooks, while processes, connections,
// databases and the supplier fail at random. In the end, no acknowledged order
// or payment may be lost, none may have been executed twice, and the supplier's
// ledger must contain exactly one card for each issued one.
func TestChaos(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: causes faults for fifteen seconds")
	}
	seed, length := *chaosSeed, *chaosFor
	if seed == 0 {
		seed = rand.Uint64()
	}
	if length == 0 {
		length = 15 * time.Second
	}
	t.Logf("go test -run TestChaos -tags drill ./internal/acceptance -chaos %s -chaos-seed %d", length, seed)
	c := newChaos(t, seed)
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		c.runRound()
	}
	c.awaitReady()
	c.workload.finish(t)
	if !t.Failed() {
		c.verify()
	}
	c.report()
}

const replicas = 3

// Targets of faults that follow the replica numbers.
const (
	targetPrimary = replicas + iota
	targetStandby
	targetSupplier
	targetNetwork
	targetChain // only with -chaos-monero
)

// chaos is the service with all its dependencies, and the source of faults.
type chaos struct {
	t                *testing.T
	random           *rand.Rand
	program          *program
	primary, standby *rig.Cluster
	externalDB       database     // replaces primary and standby if set
	lines            [2]*rig.Line // to the databases
	supplier         *supplierProcess
	nodes            *moneroNodes // nil if the chain is simulated
	replicas         [replicas]*replica
	workload         *workload

	began    time.Time
	counts   map[string]int           // of faults, by kind
	recovery map[string]time.Duration // longest time from the end of faults to the next sale, by kind
}

// database is the access to the service's database for verification.
type database interface {
	Exec(tb testing.TB, statement string, args ...any)
	Value(tb testing.TB, query string, args ...any) string
	URL(database string) string
}

func (c *chaos) database() database {
	if c.externalDB != nil {
		return c.externalDB
	}
	return c.primary
}

// replica is a process that keeps its address when restarted.
type replica struct {
	*rig.Process
	args []string
	url  string
	log  string // file name
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{t: t, random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}, recovery: map[string]time.Duration{}}
	c.primary = rig.NewCluster(t)
	c.primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'") // the standby inherits it
	c.standby = c.primary.Standby(t, "standby")
	c.primary.Exec(t, "SELECT pg_reload_conf()")
	c.lines = [2]*rig.Line{rig.NewLine(t, c.primary.Host()), rig.NewLine(t, c.standby.Host())}
	c.program = newProgram(t,
		fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable", c.lines[0].Host(), c.lines[1].Host()))
	token := c.program.account(t)
	var urls []string
	for i := range c.replicas {
		c.replicas[i] = &replica{url: fmt.Sprintf("http://127.0.0.1:%d", rig.FreePort(t))}
	}
	c.openSupplier()
	serve := serveSimulated()
	if *chaosMonero {
		c.nodes = newMoneroNodes(t)
		serve = c.nodes.flags()
	}
	for i := range c.replicas {
		address := strings.TrimPrefix(c.replicas[i].url, "http://")
		role := "all"
		if i == replicas-1 {
			role = "api"
		}
		c.replicas[i] = &replica{url: "http://" + address,
			log: filepath.Join(t.ArtifactDir(), fmt.Sprintf("replica-%d.log", i)),
			args: append(slices.Clone(serve), "--role", role, "--listen", address, "--webhook-insecure", "--webhook-timeout",
				"2s", "--suppliers", c.supplier.config)}
		c.start(i)
		urls = append(urls, c.replicas[i].url)
	}
	t.Cleanup(c.logReplicas)
	c.awaitReady()
	c.began = time.Now()
	c.workload = startWorkload(t, urls, token, seed, c.nodes)
	return c
}

// start starts a replica without waiting for it.
func (c *chaos) start(i int) {
	c.t.Helper()
	r := c.replicas[i]
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(c.program.path, r.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.program.env, log, log
	r.Process = rig.Start(c.t, cmd)
}

// logReplicas logs the end of each replica's log if the test has failed.
func (c *chaos) logReplicas() {
	if !c.t.Failed() {
		return
	}
	for i, r := range c.replicas {
		text, _ := os.ReadFile(r.log)
		lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(s string) bool {
			return strings.Contains(s, "level=INFO msg=request")
		})
		c.t.Logf("the last lines of replica %d:\n%s", i, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// fault is a failure and its repair.
type fault struct {
	kind       string
	target     int
	lasts      time.Duration
	begin, end func()
}

// pickFaults picks one fault, or several that can overlap.
func (c *chaos) pickFaults() (faults []fault) {
	if c.random.IntN(12) == 0 {
		return []fault{c.powerCut()}
	}
	n := 1
	for n < 4 && c.random.IntN(2) == 0 {
		n++
	}
	targets := int(targetChain)
	if c.nodes != nil {
		targets++
	}
	which := c.random.Perm(targets)
	if c.random.IntN(3) == 0 { // the primary can fail in the most ways
		i := slices.Index(which, targetPrimary)
		which[0], which[i] = which[i], which[0]
	}
	for _, target := range which[:n] {
		faults = append(faults, c.fault(target))
	}
	// A stopped standby can't be promoted.
	if slices.ContainsFunc(faults, func(f fault) bool { return strings.HasPrefix(f.kind, "promotion") }) {
		faults = slices.DeleteFunc(faults, func(f fault) bool { return f.target == targetStandby })
	}
	return faults
}

// runRound causes faults and ends them.
func (c *chaos) runRound() {
	faults := c.pickFaults()
	var kinds []string
	ends := map[int]time.Time{}
	for _, f := range faults {
		c.t.Logf("%6.1f s: %s (%d) for %s", time.Since(c.began).Seconds(), f.kind, f.target, f.lasts.Round(time.Millisecond))
		c.counts[f.kind]++
		kinds = append(kinds, f.kind)
		f.begin()
		ends[f.target] = time.Now().Add(f.lasts)
		c.sleep(0, time.Second)
	}
	slices.SortFunc(faults, func(a, b fault) int { return ends[a.target].Compare(ends[b.target]) })
	for _, f := range faults {
		time.Sleep(time.Until(ends[f.target]))
		f.end()
	}
	if c.random.IntN(4) > 0 { // otherwise the next faults begin before the service has recovered
		slices.Sort(kinds)
		all := strings.Join(kinds, " + ")
		c.recovery[all] = max(c.recovery[all], c.workload.awaitSale(c.t))
	}
	c.sleep(0, 2*time.Second)
}

// between returns a random duration, more often a short one.
func (c *chaos) between(least, most time.Duration) time.Duration {
	x := c.random.Float64()
	return least + time.Duration(x*x*float64(most-least))
}

func (c *chaos) sleep(least, most time.Duration) { time.Sleep(c.between(least, most)) }

// fault picks a fault of a target.
func (c *chaos) fault(target int) fault {
	switch target {
	case targetPrimary:
		return c.primaryFault()
	case targetStandby:
		return fault{"standby down", target, c.between(0, 6*time.Second), func() { c.standby.Stop() }, func() {
			c.standby.Start(c.t)
		}}
	case targetSupplier:
		return c.supplierFault()
	case targetNetwork:
		return c.networkFault()
	case targetChain:
		return c.chainFault()
	}
	r := c.replicas[target]
	restart := func() { c.start(target) }
	return []fault{
		{"replica killed", target, c.between(0, 4*time.Second), func() { r.Kill() }, restart},
		{"replica suspended", target, c.between(time.Second, 15*time.Second), func() {
			r.Signal(c.t, syscall.SIGSTOP)
		}, func() { r.Signal(c.t, syscall.SIGCONT) }},
		{"replica terminated", target, c.between(0, 4*time.Second), func() { r.Signal(c.t, syscall.SIGTERM) }, func() {
			r.Wait(c.t, 30*time.Second)
			restart()
		}},
	}[c.random.IntN(3)]
}

func (c *chaos) primaryFault() fault {
	setting := func(statement string) func() {
		return func() {
			c.primary.Exec(c.t, statement)
			c.primary.Exec(c.t, "SELECT pg_reload_conf()")
		}
	}
	return []fault{
		{"primary crashed", targetPrimary, c.between(0, 5*time.Second), func() { c.primary.Stop() }, func() {
			c.primary.Start(c.t)
		}},
		{"primary frozen", targetPrimary, c.between(time.Second, 8*time.Second), func() { c.primary.Freeze() }, func() {
			c.primary.Thaw()
		}},
		{"primary read-only", targetPrimary, c.between(time.Second, 8*time.Second),
			setting("ALTER SYSTEM SET default_transaction_read_only = on"),
			setting("ALTER SYSTEM RESET default_transaction_read_only")},
		{"promotion", targetPrimary, c.between(0, 4*time.Second), func() { c.primary.Stop() }, c.promote},
		{"promotion of a standby that was cut off", targetPrimary, c.between(0, 3*time.Second), func() {
			c.standby.Stop()
			c.sleep(0, 10*time.Second)
			if c.random.IntN(2) == 0 { // the primary then shows rows that no standby has
				c.primary.Stop()
				c.primary.Start(c.t)
				c.sleep(0, 10*time.Second)
			}
			c.primary.Stop()
			c.standby.Start(c.t)
		}, c.promote},
	}[c.random.IntN(5)]
}

// powerCut kills all processes at once.
func (c *chaos) powerCut() fault {
	return fault{"power cut", targetPrimary, c.between(0, 2*time.Second), func() {
		for _, r := range c.replicas {
			r.Kill()
		}
		c.primary.Stop()
		c.standby.Stop()
	}, func() {
		for i := range c.replicas {
			c.start(i)
		}
		c.primary.Start(c.t)
		c.standby.Start(c.t)
	}}
}

// promote promotes the standby, and makes the failed primary its standby.
func (c *chaos) promote() {
	c.primary, c.standby = c.standby, c.primary
	c.primary.Promote(c.t)
	c.standby.Follow(c.t, c.primary, "standby")
}

// awaitReady waits until all replicas are ready.
func (c *chaos) awaitReady() {
	for _, r := range c.replicas {
		r.Ready(c.t, time.Minute, func() error {
			res, err := http.Get(r.url + "/readyz")
			if err != nil {
				return err
			}
			defer func() { _ = res.Body.Close() }()
			if res.StatusCode != http.StatusOK {
				return errors.New(res.Status)
			}
			return nil
		})
	}
}

// report logs the figures of the run.
func (c *chaos) report() {
	for _, kind := range slices.Sorted(maps.Keys(c.counts)) {
		c.t.Logf("%4d x %s", c.counts[kind], kind)
	}
	longest, after := time.Duration(0), ""
	for kinds, took := range c.recovery {
		if took > longest {
			longest, after = took, kinds
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(c.counts)) {
		if took, alone := c.recovery[kind]; alone {
			c.t.Logf("longest time to the next sale after %s alone: %4.1f s", kind, took.Seconds())
		}
	}
	c.t.Logf("longest time to the next sale after any faults: %4.1f s (%s)", longest.Seconds(), after)
	c.workload.report(c.t)
}
