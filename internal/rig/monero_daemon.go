package rig

import (
	"os"
	"testing"
	"time"
)

// MoneroDaemon is a monerod.
type MoneroDaemon struct {
	server
	network []string // the arguments that select the network
}

func newMoneroDaemon(tb testing.TB, dir string, network ...string) *MoneroDaemon {
	tb.Helper()
	return &MoneroDaemon{server: newServer(tb, "monerod", dir, "", ""), network: network}
}

func newRegtest(tb testing.TB, dir string) *MoneroDaemon {
	tb.Helper()
	return newMoneroDaemon(tb, dir, "--regtest", "--keep-fakechain", "--fixed-difficulty=1")
}

// Stagenet starts a stagenet node, for this test alone: a network other than
// Monero's. Its chain has only the genesis block. Starting it takes about 1 s.
func Stagenet(tb testing.TB) *MoneroDaemon {
	tb.Helper()
	notShort(tb, "Monero")
	MoneroProgram(tb, "monerod")
	dir, err := os.MkdirTemp("", "rig-stagenet")
	if err != nil {
		tb.Fatal(err)
	}
	d := newMoneroDaemon(tb, dir, "--stagenet")
	tb.Cleanup(func() { // not tb.TempDir, which would be removed before the node is killed
		d.kill()
		_ = os.RemoveAll(dir)
	})
	d.Start(tb)
	return d
}

// Start starts the daemon. After it was killed, it continues with the chain it
// had.
func (d *MoneroDaemon) Start(tb testing.TB) {
	tb.Helper()
	d.run(tb, append([]string{"--offline", "--disable-rpc-ban", "--non-interactive", "--no-zmq", "--rpc-ssl=disabled",
		"--check-updates=disabled", "--disable-dns-checkpoints", "--data-dir=" + d.dir}, d.network...)...)
	d.Ready(tb, time.Minute, func() error { return d.Ask("get_info", nil, nil) })
}
