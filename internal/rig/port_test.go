package rig_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

// A port must remain free while its server restarts: no outgoing connection and
// no other test may take it.
func TestFreePort_IsTheCallersOwn(t *testing.T) {
	var lowest, highest int // of outgoing connections
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err != nil {
		t.Skip("left out: the range of ephemeral ports is unknown")
	} else if _, err := fmt.Sscan(string(text), &lowest, &highest); err != nil {
		t.Fatal(err)
	}
	lowest = max(lowest, 32_768) // ranges that begin lower are not supported
	given := map[int]bool{}
	for range 500 {
		port := rig.FreePort(t)
		if port >= lowest && port <= highest {
			t.Fatalf("port %d is in the range of ephemeral ports, %d to %d", port, lowest, highest)
		}
		if given[port] {
			t.Fatalf("port %d was returned twice", port)
		}
		given[port] = true
		if sign, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = sign.Close()
			t.Fatalf("another process could reserve port %d, too", port)
		}
	}
}
