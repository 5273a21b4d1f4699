//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var chosen, left, panics = choose(os.Getenv("CARDMINT_FAILPOINT"))

func choose(text string) (Name, *atomic.Int64, bool) {
	text, panics := strings.CutPrefix(text, "panic:")
	name, count, counted := strings.Cut(text, ":")
	left := &atomic.Int64{}
	left.Store(1)
	if n, err := strconv.ParseInt(count, 10, 64); counted && err == nil {
		left.Store(n)
	}
	if text != "" && !slices.Contains(Names(), Name(name)) {
		panic(fmt.Sprintf("there is no failpoint %q", name))
	}
	return Name(name), left, panics
}

// Hit kills the process or panics, if the environment selects this hit.
func Hit(name Name) {
	if name == chosen && left.Add(-1) == 0 {
		if panics {
			panic("failpoint " + string(name))
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}
