//go:build drill

package acceptance_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// TestDrill_RestartUnderLoad_ContinuesEpoch restarts the only worker at random
// times, while customers order as fast as the wallet creates addresses.
func TestDrill_RestartUnderLoad_ContinuesEpoch(t *testing.T) {
	for name, ends := range map[string][]syscall.Signal{
		"postgres": {syscall.SIGTERM, syscall.SIGKILL},
		"sqlite":   {syscall.SIGTERM}, // SIGKILL while the wallet writes its file starts an epoch
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := backupMethods(t)[name](t)
			d := newDrill(t, k.url)
			d.start("all")
			rounds := 3
			if len(ends) > 1 {
				rounds = 10
			}
			for range rounds {
				for _, signal := range ends {
					d.sell(1)
					sold := len(d.sellFor(time.Duration(300+d.random.IntN(500)) * time.Millisecond))
					last := d.servers[0]
					last.Signal(t, signal)
					last.Wait(t, 30*time.Second)
					ended := time.Now()
					d.start("all")
					t.Logf("%s under load (%d orders), ready again %s later", signal, sold, time.Since(ended).Round(time.Millisecond))
				}
			}
			d.wantOneEpoch(k.url)
		})
	}
}

// wantOneEpoch fails the test if a second epoch began or the feed was reset.
func (d *drill) wantOneEpoch(url string) {
	d.t.Helper()
	var epochs int
	if err := rig.OpenSQL(d.t, url).QueryRow("SELECT COUNT(*) FROM epochs").Scan(&epochs); err != nil {
		d.t.Fatal(err)
	}
	if epochs != 1 {
		d.t.Errorf("%d epochs; the last log:\n%s", epochs, d.servers[0].Output())
	}
	for e, err := range newClient(d.t, d.servers[0].url, d.token).Events(d.t.Context(), 0) {
		if err != nil {
			d.t.Fatal(err)
		}
		if e.Type == client.EventTypeFeedReset {
			d.t.Errorf("event %d is a reset", e.Seq)
		}
	}
}
