//go:build alarms

package acceptance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

// TestAlarms_Rules_PassPromtool runs promtool's lint and the unit tests of the
// rules.
func TestAlarms_Rules_PassPromtool(t *testing.T) {
	t.Parallel()
	promtool := rig.Need(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", ruleFile},
		{"test", "rules", "testdata/alarms.test.yaml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestAlarms_DocumentedConfig_PassesPromtool runs promtool on the configuration
// in docs/operate/alarms.md, together with the shipped rules.
func TestAlarms_DocumentedConfig_PassesPromtool(t *testing.T) {
	t.Parallel()
	promtool, dir := rig.Need(t, "promtool", "prometheus"), t.TempDir()
	page, err := os.ReadFile("../../docs/operate/alarms.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	config, _, _ := strings.Cut(rest, "```")
	rules, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"prometheus.yml": config, "alarms.rules.yaml": string(rules)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(promtool, "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rules found") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAlarms_EveryRule_FiresAndClears provokes every alarm of the shipped
// rules, waits until Prometheus fires it, removes the cause, and waits until it
// clears.
func TestAlarms_EveryRule_FiresAndClears(t *testing.T) {
	t.Parallel()
	var all sync.Map
	t.Run("all", func(t *testing.T) {
		for name, run := range map[string]func(*testing.T) *prometheus{"service": provokeService, "chain": provokeChain} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for name, x := range run(t).provocations {
					all.Store(name, x)
				}
			})
		}
	})
	text, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nALARM\tPROVOKED BY\tFIRED AFTER\tCLEARED AFTER")
	for line := range strings.Lines(string(text)) {
		name, is := strings.CutPrefix(strings.TrimSpace(line), "- alert: ")
		if !is {
			continue
		}
		x, there := all.Load(name)
		if !there {
			t.Errorf("%s was not provoked", name)
			continue
		}
		p := x.(*provocation)
		if p.fired.IsZero() || p.cleared.IsZero() {
			t.Errorf("%s did not fire and clear", name)
		}
		fmt.Fprintf(table, "%s\t%s\t%.1f s\t%.1f s\n", name, p.how, p.fired.Sub(p.caused).Seconds(),
			p.cleared.Sub(p.resolved).Seconds())
	}
	_ = table.Flush()
}

// alarmFixture is a service of an API and a worker. Each of their dependencies
// can be made to fail.
type alarmFixture struct {
	t       *testing.T
	watch   *prometheus
	cluster *rig.Cluster
	program *program
	token   string

	api, worker             *server
	startWorker             func(args ...string)
	apiMetrics, workMetrics string // addresses
	node                    *rig.Process
	nodeMetrics             string
	supplier                *rig.Process
	supplierAddress         string
	suppliers, ledger       string   // files
	rules                   []string // of the supplier; it behaves well without rules
	gecko, kraken           atomic.Value
	skew                    atomic.Int64  // nanoseconds; how far the clocks of both rate sources are ahead
	hang                    chan struct{} // closed to let the webhook receiver answer
}

func provokeService(t *testing.T) *prometheus {
	s := newAlarmFixture(t)
	// Alarms about the share of failed requests come first: after fewer
	// requests in total, fewer successful ones clear them.
	for _, provoke := range []func(){
		s.provokeRates, s.provokeDatabase, s.provokeSupplier, s.provokeMoney, s.provokeToken, s.checkDashboard,
		s.provokeProcesses} {
		s.watch.awaitNone(t, "CardmintPoolSaturated") // it takes a minute to clear
		provoke()
	}
	s.watch.awaitCleared(t, "CardmintPoolSaturated")
	s.watch.deleteSeries(t, "cardmint_epoch", time.Now()) // a new worker may have started an epoch
	s.watch.awaitNone(t)
	return s.watch
}

func newAlarmFixture(t *testing.T) *alarmFixture {
	t.Helper()
	s := &alarmFixture{t: t, watch: startPrometheus(t), cluster: rig.NewCluster(t), hang: make(chan struct{})}
	s.program = newProgram(t, s.cluster.URL("postgres"))
	s.token = s.program.account(t)
	s.gecko.Store("150.5")
	s.kraken.Store("149.5")
	dir := t.TempDir()
	s.supplierAddress, s.ledger = fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t)), filepath.Join(dir, "supplier.db")
	s.suppliers = writeSuppliers(t, dir, "http://"+s.supplierAddress)
	file, err := os.OpenFile(s.suppliers, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(
			"max_usd = \"200\"\n[[supplier]]\nname = \"shelf\"\nkind = \"stock\"\ntest = true\nmin_usd = \"500\"\nmax_usd = \"500\"\nlow_stock = 2\n")
		_ = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.startSupplier()
	s.importStock(1, 3)
	s.apiMetrics, s.workMetrics = fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t)),
		fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t))
	sources := []string{"serve", "--simulated", "--suppliers", s.suppliers, "--rate-sources", "coingecko,kraken",
		"--rate-url", "coingecko=" + s.skewedSource(coingecko(t, &s.gecko)),
		"--rate-url", "kraken=" + s.skewedSource(kraken(t, &s.kraken)), "--rate-every", "500ms", "--rate-max-age", "5s",
		"--webhook-insecure", "--webhook-timeout", "10s",
		"--limit-token", "off", "--limit-account", "off", "--limit-create", "off"}
	s.program.env = append(s.program.env, "CARDMINT_RECONCILE_EVERY=5s")
	s.startWorker = func(args ...string) {
		s.worker = s.program.serve(t,
			append(append(slices.Clone(sources), "--role", "worker", "--metrics-listen", s.workMetrics), args...)...)
	}
	s.startWorker()
	s.api = s.program.serve(t, append(slices.Clone(sources), "--role", "api", "--metrics-listen", s.apiMetrics)...)
	s.startNode()
	s.scrapeAll()
	return s
}
