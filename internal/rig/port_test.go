package rig_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

// A server that is stopped and started again must find its port free. It is
// taken by no connection that goes out, and no test gets it twice.
func TestFreePort_IsTheCallersOwn(t *testing.T) {
	var lowest, highest int // of connections that go out
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err != nil {
		t.Skip("left out: the ports that connections go out from are not known")
	} else if _, err := fmt.Sscan(string(text), &lowest, &highest); err != nil {
		t.Fatal(err)
	}
	lowest = max(lowest, 32_768) // a machine that is set up otherwise must live with it
	given := map[int]bool{}
	for range 500 {
		port := rig.FreePort(t)
		if port >= lowest && port <= highest {
			t.Fatalf("port %d is one that connections go out from, %d to %d", port, lowest, highest)
		}
		if given[port] {
			t.Fatalf("port %d was given twice", port)
		}
		given[port] = true
		if sign, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = sign.Close()
			t.Fatalf("another process would be given port %d, too", port)
		}
	}
}
