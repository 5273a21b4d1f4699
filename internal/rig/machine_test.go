//go:build linux && drill

package rig_test

import (
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

func TestMachine_CanBeCutOffAndForgetsItsFiles(t *testing.T) {
	network := rig.NewNetwork(t)
	one, two := network.Machine(t, "one", 11), network.Machine(t, "two", 12)
	reach := "timeout 1 bash -c 'echo >/dev/tcp/" + two.Address + "/7'; echo $?"
	for _, step := range []struct {
		what, want string
		do         func()
	}{
		{"plugged in", "1", func() {}}, // refused: no listener
		{"cut", "124", func() { two.Cut(t) }},
		{"mended", "1", func() { two.Restore(t) }},
	} {
		step.do()
		if got := one.Run(t, "set +e; "+reach); got != step.want {
			t.Errorf("%s: %s, not %s", step.what, got, step.want)
		}
	}
	one.Run(t, "echo mine >/etc/rig-test")
	if got := one.Run(t, "cat /etc/rig-test; hostname"); got != "mine\none" {
		t.Errorf("it has %s", got)
	}
	if got := two.Run(t, "ls /etc/rig-test || echo none"); got != "none" {
		t.Errorf("the other has %s", got)
	}
}
