package cli_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cardmint/cardmint/internal/rig"
)

func (h *host) index() {
	h.open()
	h.until(`"status":"ready"`, "The operator's runbook")
}

// installing follows the page on installing, from the package's configuration to PostgreSQL.
func (h *host) installing() {
	h.Helper()
	h.set("CARDMINT_SIMULATED", "")
	h.write("/cardmint_1_amd64.deb", "a package", 0o600)
	h.write("/SHA256SUMS", fmt.Sprintf("%x  cardmint_1_amd64.deb\n%x  another\n", sha256.Sum256([]byte("a package")), sha256.Sum256(nil)), 0o600)
	wantOutput(h.T, h.run("The package"), "cardmint_1_amd64.deb: OK")
	h.run("The package")
	said := h.run("The first start")
	wantOutput(h.T, said, "HTTP/1.1 ")
	h.token = regexp.MustCompile(`cm_test_\w+`).FindString(said)
	h.ready()
	sellCard(h.T, h.shop())

	h.here["/etc/caddy"], h.here["https://cards.example/readyz"] = filepath.Join(h.dir, "etc/caddy"), "http://"+h.address+"/readyz"
	must(h, os.MkdirAll(h.here["/etc/caddy"], 0o700))
	h.unit("caddy", nil, func() *rig.Process { return nil })
	h.run("TLS")
	h.run("TLS")
	if got := h.service().setting("CARDMINT_PUBLIC_URL"); got != "https://cards.example" {
		h.Errorf("the public URL is %s", got)
	}
	c := rig.NewCluster(h)
	h.postgresql(c)
	h.here["/var/run/postgresql"] = c.Files()
	h.run("PostgreSQL")
	wantOutput(h.T, h.service().must(h, "account", "create", "shop"), "shop")
	h.run("As a container")
}

// alarms runs what the sections of alarms ask. It tells something else while there is an alarm, which make alarms sees to: here, every
// command has to be one that is known, and has to end.
func (h *host) alarms() {
	h.stock(3)
	root, err := filepath.Abs("../..")
	must(h, err)
	h.here["/usr/share/doc/cardmint"], h.here["/etc/prometheus"] = root, filepath.Join(h.dir, "etc/prometheus")
	must(h, os.MkdirAll(h.here["/etc/prometheus"], 0o700))
	h.postgresql(rig.NewCluster(h))
	for _, unit := range []string{"prometheus", "prometheus-node-exporter", "monerod", "monero-wallet-rpc"} {
		h.unit(unit, nil, func() *rig.Process { return nil })
	}
	h.open()
	if out, code := h.shell("cp cards.csv /var/lib/cardmint && cm stock import cards.csv --supplier shelf --yes"); code != 0 {
		h.Fatal(out)
	}
	h.offered()
	card := h.order(150)
	for _, heading := range slices.Sorted(maps.Keys(h.blocks)) {
		for range h.blocks[heading] {
			script := strings.ReplaceAll(h.script(heading), "UUID", card.UUID.String())
			for _, line := range strings.Split(strings.TrimSpace(script), "\n") {
				out, code := h.shell("set +e +o pipefail\n" + line)
				for _, bad := range []string{"command not found", "syntax error", "unexpected argument", "unknown flag", "there is no unit", "not known here", "unrecognized option", "invalid option"} {
					if code == 127 || strings.Contains(out, bad) {
						h.Errorf("%s: exit code %d\n%s\n%s", heading, code, line, out)
					}
				}
			}
		}
	}
}
