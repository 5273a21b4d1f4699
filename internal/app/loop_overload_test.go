package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// spread runs replicas of a loop that start at the same moment and fail for a
// time, and counts, for ten seconds after that, how many ticks there are, and
// how many in the fullest tenth of a second.
func spread(t *testing.T, l loop, replicas int, ill time.Duration) (fullest, all int) {
	t.Helper()
	const while, part = 10 * time.Second, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var mu sync.Mutex
		parts := map[time.Duration]int{}
		l.tick = func(context.Context) error {
			at := time.Since(start) - ill
			if at < 0 {
				return errors.New("the database is away")
			}
			mu.Lock()
			defer mu.Unlock()
			parts[at/part]++
			return nil
		}
		var running sync.WaitGroup
		for range replicas {
			running.Go(func() { l.run(ctx, slog.New(slog.DiscardHandler)) })
		}
		time.Sleep(ill + while)
		cancel()
		running.Wait()
		for _, ticks := range parts {
			fullest, all = max(fullest, ticks), all+ticks
		}
	})
	return fullest, all
}

// Replicas that start together during an outage of the database retry at
// different times, because pauses vary by 10 %.
func TestLoops_ReplicasStartTogether_DoNotTickInStep(t *testing.T) {
	const replicas, ill = 40, 5 * time.Minute
	for name, l := range map[string]loop{
		"whose pauses grow while it fails": {every: time.Second},
		"that asks as often as ever":       {every: time.Second, maxPause: time.Second},
		"that keeps its time":              {every: time.Second, fixedRate: true},
	} {
		t.Run("a loop "+name, func(t *testing.T) {
			fullest, all := spread(t, l, replicas, ill)
			if all < replicas*5 {
				t.Errorf("only %d ticks", all)
			}
			if fullest > replicas/2 {
				t.Errorf("%d of %d replicas tick within a tenth of a second", fullest, replicas)
			}
		})
	}
}
