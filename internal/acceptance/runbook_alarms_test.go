package acceptance_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cardmint/cardmint/internal/rig"
)

func (h *host) index() {
	h.start()
	h.runUntil(`"status":"ready"`, "When something is wrong")
}

// alarms runs the commands in the sections of all alarms. Their output depends
// on the alarm, which make alarms tests. Here, every command must exist, accept
// its flags, and terminate.
func (h *host) alarms() {
	h.addStock(3)
	root, err := filepath.Abs("../..")
	must(h, err)
	h.substitutions["/usr/share/doc/cardmint"], h.substitutions["/etc/prometheus"] = root, filepath.Join(h.dir, "etc/prometheus")
	must(h, os.MkdirAll(h.substitutions["/etc/prometheus"], 0o700))
	h.postgresql(rig.NewCluster(h))
	for _, unit := range []string{"prometheus", "prometheus-node-exporter", "monerod", "monero-wallet-rpc"} {
		h.unit(unit, nil, func() *rig.Process { return nil })
	}
	h.start()
	if out, code := h.shell(
		"cp cards.csv /var/lib/cardmint && cm stock import cards.csv --supplier shelf --yes"); code != 0 {
		h.Fatal(out)
	}
	h.awaitOffers()
	card := h.order(150)
	for _, heading := range slices.Sorted(maps.Keys(h.blocks)) {
		for range h.blocks[heading] {
			script := strings.ReplaceAll(h.script(heading), "UUID", card.UUID.String())
			for _, line := range strings.Split(strings.TrimSpace(script), "\n") {
				out, code := h.shell("set +e +o pipefail\n" + line)
				for _, bad := range []string{"command not found", "syntax error", "unexpected argument", "unknown flag",
					"there is no unit", "not known here", "unrecognized option", "invalid option"} {
					if code == 127 || strings.Contains(out, bad) {
						h.Errorf("%s: exit code %d\n%s\n%s", heading, code, line, out)
					}
				}
			}
		}
	}
}
