//go:build linux && drill

package acceptance_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/rig"
)

// haPage is the page whose commands set up and maintain the cluster.
const haPage = "operate/high-availability.md"

// haCluster is three database machines under Patroni, and one machine for
// cardmint's proxies, set up with the documented commands.
type haCluster struct {
	t       *testing.T
	network *rig.Network
	files   string // with the documented files
	nodes   []*rig.Machine
	app     *rig.Machine
	ports   map[string]int // free ports of the shared machine, by documented port
	patroni *http.Client
	ran     map[string]bool // headings whose commands were run
}

// commands returns the commands under a heading of a page.
func commands(t *testing.T, page, heading string) string {
	t.Helper()
	block := commandBlocks(t, page)[heading]
	if block == "" {
		t.Fatalf("%s: no commands below %q", page, heading)
	}
	return block
}

// commandBlocks returns the commands of a page by heading. Each heading may
// have one block.
func commandBlocks(t *testing.T, page string) map[string]string {
	t.Helper()
	blocks := map[string]string{}
	for heading, all := range shellBlocks(t, page) {
		if blocks[heading] = all[0]; len(all) > 1 {
			t.Errorf("%s: %d blocks of commands below %q", page, len(all), heading)
		}
	}
	return blocks
}

// allRan fails the test if it skipped commands of a page.
func (h *haCluster) allRan(page string) {
	h.t.Helper()
	for heading := range commandBlocks(h.t, page) {
		if !h.ran[heading] {
			h.t.Errorf("%s: no test ran the commands below %q", page, heading)
		}
	}
}

// systemctl replaces systemd: it starts and stops the services of the packages'
// units.
const systemctl = `#!/bin/bash
unit() { sed -n "s/^$1=//p" "/lib/systemd/system/$name.service"; }
start() {
  set -a
  while read -r line; do eval "export ${line//%H/$(hostname)}"; done < <(unit Environment)
  while read -r file; do file=${file//%p/$name} file=${file#-}; [ ! -e "$file" ] || . "$file"; done < <(unit EnvironmentFile)
  user=$(unit User) user=${user:-root}
  HOME=$(getent passwd "$user" | cut -d: -f6)
  eval "exec setsid setpriv --reuid=$user --regid=$user --init-groups $(unit ExecStart)" >>"/var/log/$name.out" 2>&1 </dev/null &
  echo $! >"/run/$name.started"
}
stop() {
  [ -e "/run/$name.started" ] || return 0
  read -r pid <"/run/$name.started"
  kill "$pid" 2>/dev/null
  while [ -d "/proc/$pid" ]; do sleep 0.1; done
  rm "/run/$name.started"
}
cd /
what=$1 now=
shift
for name; do
  [ "$name" != --now ] || { now=yes; continue; }
  case $what in
  enable) [ -z "$now" ] || start ;;
  disable) [ -z "$now" ] || stop ;;
  restart) stop; start ;;
  *) "$what" ;;
  esac
done
`

// newHACluster sets up a cluster with the documented commands.
func newHACluster(t *testing.T) *haCluster {
	t.Helper()
	for program, debianPackage := range map[string]string{"patroni": "patroni", "etcd": "etcd-server",
		"haproxy": "haproxy", "pgbackrest": "pgbackrest"} {
		rig.Need(t, program, debianPackage)
	}
	h := &haCluster{t: t, network: rig.NewNetwork(t), files: t.TempDir(), ran: map[string]bool{},
		ports: map[string]int{"5000": rig.FreePort(t), "6432": rig.FreePort(t)}}
	h.copyFiles()
	for i := range 3 {
		h.nodes = append(h.nodes, h.network.Machine(t, fmt.Sprintf("db%d", i+1), 11+i))
	}
	h.app = h.network.Machine(t, "app1", 0)
	t.Cleanup(h.saveLogs) // before the machines stop
	h.follow(h.nodes[0], haPage, "Certificates and passwords")
	for _, m := range h.nodes {
		h.follow(m, haPage, "The database machines", "NAME=db1 ADDRESS=10.0.0.11",
			fmt.Sprintf("NAME=%s ADDRESS=%s", m.Name, m.Address))
	}
	authority, err := os.ReadFile(filepath.Join(h.files, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	h.patroni = &http.Client{Timeout: time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	h.awaitHealthy(40 * time.Second)
	h.follow(h.leader(), haPage, "The database")
	h.follow(h.app, haPage, "HAProxy")
	// Until its first checks, HAProxy treats every server as the leader. Then
	// it closes the connections to all standbys.
	db := rig.OpenSQL(t, h.documentedURL())
	db.SetMaxIdleConns(0)
	for deadline, led := time.Now().Add(time.Minute), 0; led < 2*len(h.nodes); time.Sleep(100 * time.Millisecond) {
		var standby bool
		err := db.QueryRow("SELECT pg_is_in_recovery()").Scan(&standby)
		if led++; err != nil || standby {
			led = 0
		}
		if time.Now().After(deadline) {
			t.Fatal("HAProxy also connects to other servers than the leader: ", err)
		}
	}
	return h
}

// copyFiles copies the documented files, with free addresses and ports.
func (h *haCluster) copyFiles() {
	h.t.Helper()
	found, err := filepath.Glob("../../docs/operate/ha/*")
	if err != nil || len(found) == 0 {
		h.t.Fatal("no files", err)
	}
	for _, from := range found {
		text, err := os.ReadFile(from)
		if err != nil {
			h.t.Fatal(err)
		}
		h.write(filepath.Base(from), h.localize(string(text)), 0o644)
	}
	h.write("systemctl", systemctl, 0o755)
}

func (h *haCluster) write(name, text string, mode os.FileMode) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.files, name), []byte(text), mode); err != nil {
		h.t.Fatal(err)
	}
}

// localize replaces documented addresses and ports by free ones.
func (h *haCluster) localize(text string) string {
	text = strings.ReplaceAll(text, "10.0.0.", h.network.Prefix())
	for documented, free := range h.ports {
		for _, before := range []string{"127.0.0.1:", "port=", "port = "} {
			text = strings.ReplaceAll(text, before+documented, before+fmt.Sprint(free))
		}
	}
	return text
}

// prelude replaces commands that the machines lack or do not need. The machines
// share /tmp, so that pgBackRest needs another directory for its locks.
const prelude = "PATH=$PWD:$PATH\napt-get() { :; }\nexport PGBACKREST_LOCK_PATH=/run/lock\n"

// follow runs the commands under a heading of a page on a machine, and returns
// their output. changes are pairs of old and new text; each old text must occur
// in the commands.
func (h *haCluster) follow(m *rig.Machine, page, heading string, changes ...string) string {
	h.t.Helper()
	return m.RunIn(h.t, h.files, h.script(page, heading, changes...))
}

func (h *haCluster) script(page, heading string, changes ...string) string {
	h.t.Helper()
	script := commands(h.t, page, heading)
	h.ran[heading] = true
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(script, changes[i]) {
			h.t.Fatalf("%s: %q is not below %q", page, changes[i], heading)
		}
		script = strings.Replace(script, changes[i], changes[i+1], 1)
	}
	return prelude + h.localize(script)
}

// member is a machine in Patroni's view.
type member struct {
	Name, Role, State string
	Timeline          int
}

// members returns the view of the first machine that answers. It skips
// leaveOut.
func (h *haCluster) members(leaveOut ...*rig.Machine) (members []member, err error) {
	err = errors.New("no machine is left")
	for _, m := range h.nodes {
		if len(leaveOut) > 0 && m == leaveOut[0] {
			continue
		}
		if members, err = h.membersFrom(m); err == nil {
			return members, nil
		}
	}
	return nil, err
}

// membersFrom returns one machine's view of the cluster. It may be outdated if
// the machine was just disconnected.
func (h *haCluster) membersFrom(m *rig.Machine) ([]member, error) {
	res, err := h.patroni.Get("https://" + m.Address + ":8008/cluster")
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	var cluster struct{ Members []member }
	err = json.NewDecoder(res.Body).Decode(&cluster)
	return cluster.Members, err
}

// memberWithRole returns the machine with a role, or nil.
func (h *haCluster) memberWithRole(role string, leaveOut ...*rig.Machine) *rig.Machine {
	members, _ := h.members(leaveOut...)
	for i, m := range members {
		if m.Role == role && m.State != "stopped" {
			for _, machine := range h.nodes {
				if machine.Name == members[i].Name {
					return machine
				}
			}
		}
	}
	return nil
}

func (h *haCluster) leader() *rig.Machine {
	h.t.Helper()
	m := h.memberWithRole("leader")
	if m == nil {
		h.t.Fatal("the cluster has no leader")
	}
	return m
}

// awaitHealthy waits until all three machines have joined, have one synchronous
// standby, and agree on that. It returns how long it waited.
func (h *haCluster) awaitHealthy(limit time.Duration) time.Duration {
	h.t.Helper()
	started := time.Now()
	for ; ; time.Sleep(100 * time.Millisecond) {
		leaders, timelines := map[string]bool{}, map[int]bool{}
		var wrong error
		for _, by := range h.nodes {
			members, err := h.membersFrom(by)
			roles := map[string]int{}
			for _, m := range members {
				if m.State == "running" || m.State == "streaming" {
					roles[m.Role]++
					timelines[m.Timeline] = true
					if m.Role == "leader" {
						leaders[m.Name] = true
					}
				}
			}
			if err != nil || len(members) != 3 || roles["leader"] != 1 || roles["sync_standby"] != 1 || roles["replica"] != 1 {
				wrong = fmt.Errorf("view of %s: %+v, error %v", by.Name, members, err) //nolint:errorlint // may be nil
			}
		}
		if wrong == nil && len(leaders) == 1 && len(timelines) == 1 {
			return time.Since(started)
		}
		if time.Since(started) > limit {
			h.t.Fatalf("the cluster is not healthy after %s: leaders %v, timelines %v, %v", limit, leaders, timelines, wrong)
		}
	}
}

// url returns a database URL with the given hosts and parameters.
func (h *haCluster) url(hosts, parameters string) string {
	h.t.Helper()
	password, err := os.ReadFile(filepath.Join(h.files, "cardmint.password"))
	if err != nil {
		h.t.Fatal(err)
	}
	return fmt.Sprintf("postgres://cardmint:%s@%s/cardmint?sslrootcert=%s&%s", strings.TrimSpace(string(password)), hosts,
		filepath.Join(h.files, "ca.crt"), parameters)
}

// documentedURL returns the database URL that the documentation recommends.
func (h *haCluster) documentedURL() string {
	h.t.Helper()
	line := h.follow(h.app, haPage, "cardmint")
	url := strings.Trim(strings.TrimPrefix(line, "CARDMINT_DATABASE_URL="), "\"")
	// The documented path exists only on the machine.
	return strings.Replace(url, "/etc/haproxy/database-ca.crt", filepath.Join(h.files, "ca.crt"), 1)
}

// saveLogs saves the logs of the machines, and logs their last lines if the
// test has failed.
func (h *haCluster) saveLogs() {
	for _, m := range append(h.nodes, h.app) {
		for _, name := range []string{"etcd", "patroni", "haproxy", "pgbouncer"} {
			text, err := os.ReadFile(m.Path("/var/log/" + name + ".out"))
			if err != nil {
				continue
			}
			_ = os.WriteFile(filepath.Join(h.t.ArtifactDir(), m.Name+"-"+name+".log"), text, 0o644)
			if h.t.Failed() {
				lines := strings.Split(string(text), "\n")
				h.t.Logf("the last lines of %s on %s:\n%s", name, m.Name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
			}
		}
	}
}
