//go:build alarms

package acceptance_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

const (
	ruleFile = "../../docs/operate/alarms.rules.yaml"
	// speedup shortens each "for" of the rules: a minute becomes a second.
	// Expressions, and the durations in them, stay as shipped.
	speedup = 60
)

// prometheus is Debian's Prometheus with the shipped rules. It records how each
// alarm was provoked, and when its state changed.
type prometheus struct {
	*rig.Process
	url, dir     string
	provocations map[string]*provocation
}

// provocation is an alarm that the test caused.
type provocation struct {
	how                              string
	caused, fired, resolved, cleared time.Time
}

// alert is an entry of Prometheus's list of alerts.
type alert struct {
	Labels, Annotations map[string]string
	State               string
}

// startPrometheus starts a server without scrape targets.
func startPrometheus(t *testing.T) *prometheus {
	t.Helper()
	program := rig.Need(t, "prometheus", "prometheus")
	p := &prometheus{dir: t.TempDir(), url: fmt.Sprintf("http://127.0.0.1:%d", rig.FreePort(t)),
		provocations: map[string]*provocation{}}
	p.setTargets(t, "cardmint")
	p.setTargets(t, "node")
	p.write(t, "alarms.rules.yaml", shortenedRules(t))
	p.write(t, "prometheus.yml", `global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}
rule_files: [alarms.rules.yaml]
scrape_configs:
  - {job_name: cardmint, file_sd_configs: [{files: [cardmint.json], refresh_interval: 1s}]}
  - {job_name: node, file_sd_configs: [{files: [node.json], refresh_interval: 1s}]}
`)
	cmd := exec.Command(program, "--config.file="+filepath.Join(p.dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(p.dir, "data"),
		"--web.listen-address="+strings.TrimPrefix(p.url, "http://"), "--web.enable-admin-api", "--log.level=warn")
	p.Process = rig.Start(t, cmd)
	p.Ready(t, 30*time.Second, func() error {
		res, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("ready: %s", res.Status)
		}
		return nil
	})
	return p
}

// shortenedRules returns the rules with every "for" shortened.
func shortenedRules(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^(        for: )(\S+)$`).ReplaceAllStringFunc(string(text), func(line string) string {
		before, length, _ := strings.Cut(line, "for: ")
		d, err := time.ParseDuration(length)
		if err != nil {
			t.Fatalf("%s: %v", strings.TrimSpace(line), err)
		}
		return before + "for: " + strconv.Itoa(int((d / speedup).Milliseconds())) + "ms"
	})
}

func (p *prometheus) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setTargets replaces the addresses that Prometheus scrapes for a job.
func (p *prometheus) setTargets(t *testing.T, job string, addresses ...string) {
	t.Helper()
	text, err := json.Marshal([]map[string][]string{{"targets": append([]string{}, addresses...)}})
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, job+".json", string(text))
}

// call calls the HTTP API and decodes the data of the response into result.
func (p *prometheus) call(t *testing.T, path string, query url.Values, result any) {
	t.Helper()
	res, err := http.PostForm(p.url+path, query)
	if err == nil && query == nil {
		_ = res.Body.Close()
		res, err = http.Get(p.url + path)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("%s: %s, %v: %s", path, res.Status, err, text)
	}
	if result == nil {
		return
	}
	var answer struct{ Data json.RawMessage }
	if err = json.Unmarshal(text, &answer); err == nil {
		err = json.Unmarshal(answer.Data, result)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", path, err, text)
	}
}

// deleteSeries deletes a series up to a time, so that no rule sees its past.
func (p *prometheus) deleteSeries(t *testing.T, series string, before time.Time) {
	t.Helper()
	p.call(t, "/api/v1/admin/tsdb/delete_series",
		url.Values{"match[]": {series}, "end": {strconv.FormatInt(before.Unix(), 10)}}, nil)
}

// active returns the pending and firing alarms.
func (p *prometheus) active(t *testing.T) map[string]alert {
	t.Helper()
	var answer struct{ Alerts []alert }
	p.call(t, "/api/v1/alerts", nil, &answer)
	all := map[string]alert{}
	for _, a := range answer.Alerts {
		name := a.Labels["alertname"]
		if old, there := all[name]; !there || old.State != "firing" {
			all[name] = a
		}
	}
	return all
}

// observe records state changes of the provoked alarms.
func (p *prometheus) observe(t *testing.T) {
	t.Helper()
	all := p.active(t)
	for name, x := range p.provocations {
		a, there := all[name]
		switch {
		case x.fired.IsZero() && a.State == "firing":
			x.fired = time.Now()
			for _, text := range []string{a.Annotations["summary"], a.Annotations["description"]} {
				if text == "" || strings.Contains(text, "<error") || strings.Contains(text, "<no value>") {
					t.Errorf("%s has the description %q", name, text)
				}
			}
			t.Logf("%s: %s", name, a.Annotations["description"])
		case !x.resolved.IsZero() && x.cleared.IsZero() && !there:
			x.cleared = time.Now()
		}
	}
}

// await observes until a condition holds for all named alarms.
func (p *prometheus) await(t *testing.T, what string, holds func(*provocation) bool, names []string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(250 * time.Millisecond) {
		p.observe(t)
		i := slices.IndexFunc(names, func(name string) bool { return !holds(p.provocations[name]) })
		if i < 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s did not %s; active: %v", names[i], what, p.active(t))
		}
	}
}

// provoke causes alarms. None of them may be active before.
func (p *prometheus) provoke(t *testing.T, how string, cause func(), names ...string) {
	t.Helper()
	for name := range p.active(t) {
		if slices.Contains(names, name) {
			t.Fatalf("%s is active before it is provoked: %v", name, p.active(t)[name])
		}
	}
	for _, name := range names {
		p.provocations[name] = &provocation{how: how, caused: time.Now()}
	}
	cause()
}

// awaitFiring waits until the alarms fire.
func (p *prometheus) awaitFiring(t *testing.T, names ...string) {
	t.Helper()
	p.await(t, "fire", func(x *provocation) bool { return !x.fired.IsZero() }, names)
}

// resolve waits until the alarms fire, and then calls fix to remove their
// cause.
func (p *prometheus) resolve(t *testing.T, fix func(), names ...string) {
	t.Helper()
	p.awaitFiring(t, names...)
	for _, name := range names {
		p.provocations[name].resolved = time.Now()
	}
	fix()
}

// awaitCleared waits until resolved alarms are no longer active.
func (p *prometheus) awaitCleared(t *testing.T, names ...string) {
	t.Helper()
	p.await(t, "clear", func(x *provocation) bool { return !x.cleared.IsZero() }, names)
}

// awaitNone waits until no alarm is pending or firing, except the given ones.
func (p *prometheus) awaitNone(t *testing.T, but ...string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(250 * time.Millisecond) {
		all := p.active(t)
		for _, name := range but {
			delete(all, name)
		}
		if len(all) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("unexpected alarms: %v", all)
		}
	}
}
