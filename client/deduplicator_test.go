package client

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

func numbered(n int) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// calls counts how often Once calls handle.
func calls(t *testing.T, d Deduplicator, id uuid.UUID) int {
	t.Helper()
	n := 0
	if err := d.Once(t.Context(), id, func(context.Context) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMemoryDeduplicator_ForgetsTheOldestOnly(t *testing.T) {
	d := NewMemoryDeduplicator(3)
	for n := range 100 {
		if calls(t, d, numbered(n)) != 1 {
			t.Fatalf("%d was not handled", n)
		}
		for old := max(0, n-2); old <= n; old++ {
			if calls(t, d, numbered(old)) != 0 {
				t.Fatalf("after %d: %d was handled again", n, old)
			}
		}
		if len(d.handled) > 3 || len(d.ring) > 3 || len(d.running) > 0 {
			t.Fatalf("holds %d, %d, %d", len(d.handled), len(d.ring), len(d.running))
		}
	}
	if calls(t, d, numbered(96)) != 1 {
		t.Error("the oldest is still remembered")
	}
}

func TestNewMemoryDeduplicator_HoldsOneAtLeast(t *testing.T) {
	for _, size := range []int{-1, 0, 1} {
		d := NewMemoryDeduplicator(size)
		if calls(t, d, eventID) != 1 || calls(t, d, eventID) != 0 || calls(t, d, testID) != 1 || calls(t, d, eventID) != 1 {
			t.Errorf("size %d", size)
		}
	}
}

func TestMemoryDeduplicator_OnlySuccessIsRemembered(t *testing.T) {
	for name, handle := range map[string]func(context.Context) error{
		"error":  func(context.Context) error { return errors.New("no") },
		"panic":  func(context.Context) error { panic("a bug") },
		"Goexit": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			d := NewMemoryDeduplicator(10)
			var group sync.WaitGroup
			group.Go(func() {
				defer func() { _ = recover() }()
				if err := d.Once(t.Context(), eventID, handle); err == nil {
					t.Error("no error")
				}
			})
			group.Wait()
			if calls(t, d, eventID) != 1 {
				t.Error("the failed event counts as handled")
			}
		})
	}
}

func TestMemoryDeduplicator_WaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewMemoryDeduplicator(10)
		go func() {
			_ = d.Once(t.Context(), eventID, func(context.Context) error {
				time.Sleep(time.Hour)
				return nil
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		err := d.Once(ctx, eventID, func(context.Context) error {
			t.Error("handled twice concurrently")
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if calls(t, d, testID) != 1 {
			t.Error("another event waits too")
		}
		if calls(t, d, eventID) != 0 {
			t.Error("not remembered")
		}
	})
}

func TestMemoryDeduplicator_ManyAtOnce(t *testing.T) {
	d := NewMemoryDeduplicator(100)
	var handled [100]int // written without a lock; the race detector finds concurrent calls
	var group sync.WaitGroup
	for i := range 2000 {
		group.Go(func() {
			n := i % len(handled)
			err := d.Once(t.Context(), numbered(n), func(context.Context) error {
				if handled[n]++; handled[n] < 3 {
					return errors.New("not yet")
				}
				return nil
			})
			if err != nil && err.Error() != "not yet" {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for n, times := range handled {
		if times != 3 {
			t.Errorf("%d was handled %d times", n, times)
		}
	}
}
