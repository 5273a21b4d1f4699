package issue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/issue"
)

// Batches are small, and grow only while they are full and the supplier is
// fast.
func TestIssue_FullFastBatches_Grow(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		var full bool
		var takes time.Duration
		r.store.claims = func(_ []issue.Intent, n int, _ time.Duration) []issue.Intent {
			r.clock.pass(takes)
			if !full {
				n--
			}
			claimed := make([]issue.Intent, n)
			for i := range claimed {
				// of no existing card
				claimed[i] = issue.Intent{CardUUID: uuid.New(), State: issue.StateOpen, Supplier: "press", Attempts: 1}
			}
			return claimed
		}
		for _, step := range []struct {
			full  bool
			takes time.Duration
			size  int
		}{
			{true, 0, 16}, {true, 0, 32}, {true, 0, 64}, {false, 0, 128}, {true, 0, 16}, {true, time.Second - 1, 32},
			{true, time.Second, 64}, {true, 0, 16},
			{true, 0, 32}, {true, 0, 64}, {true, 0, 128}, {true, 0, 256}, {true, 0, 512}, {true, 0, 512},
		} {
			full, takes = step.full, step.takes
			n := step.size
			if !full {
				n--
			}
			r.issue(n)
			if got := r.store.claimedCounts[len(r.store.claimedCounts)-1]; got != step.size {
				t.Errorf("claimed %d, want %d", got, step.size)
			}
		}
		r.wantCalls()
	})
}

// grow makes the next batch n cards larger than the smallest.
func (r *fixture) grow() {
	r.t.Helper()
	r.manyPaid(16)
	r.issue(16)
	r.supplier.calls = nil
}

func TestIssue_Batch_StoredInOneCommit(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		r.grow()
		r.manyPaid(20)
		r.issue(20)
		if diff := cmp.Diff([]int{16, 20}, r.store.commitsOf); diff != "" {
			t.Error(diff)
		}
		if r.woken.Load() != 2 {
			t.Errorf("woken %d times", r.woken.Load())
		}
	})
}

// overlap delays the commit of the second batch until a card of the third is
// requested. It calls asked at that request.
func (r *fixture) overlap(asked func()) {
	var submitted, committed atomic.Int32
	next := make(chan struct{})
	r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
		if submitted.Add(1) == 16+32+1 {
			asked()
			close(next)
		}
		return r.supplier.make(ctx, q)
	}
	r.store.commits = func(_ context.Context, commit func() error) error {
		if committed.Add(1) == 2 {
			select {
			case <-next:
			case <-time.After(10 * time.Second):
				r.t.Error("no card of the third batch was requested")
			}
		}
		return commit()
	}
}

// While a large batch is stored, the next one is requested.
func TestTick_LargeBatch_NextOneRequestedWhileStored(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards := r.manyPaid(16 + 32 + 5)
		r.overlap(func() {})
		check(t, r.issuer.Tick(t.Context()))
		for _, c := range cards {
			r.wantCard(c)
		}
	})
}

// After a slow or failed commit, the next batch has the smallest size.
func TestIssue_SlowCommit_NextBatchIsSmall(t *testing.T) {
	for name, breaks := range map[string]func(*fixture) error{
		"slow": func(r *fixture) error { r.clock.pass(time.Second); return nil }, "failing": func(*fixture) error {
			return errFault
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				r.grow()
				r.manyPaid(32)
				r.store.commits = func(_ context.Context, commit func() error) error {
					if err := breaks(r); err != nil {
						return err
					}
					return commit()
				}
				_, _ = r.issuer.IssueDue(t.Context())
				r.manyPaid(20)
				r.due()
				_, err := r.issuer.IssueDue(t.Context())
				if got := r.store.claimedCounts[1:]; !slices.Equal(got, []int{32, 16}) {
					t.Errorf("claimed %d, error %v", got, err)
				}
			})
		})
	}
}

// Claimed cards are stored even if the process is stopped, including the batch
// that waits for another one to be stored.
func TestTick_Shutdown_BothBatchesStored(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		r.manyPaid(16 + 32 + 32 + 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.overlap(cancel)
		if err := r.issuer.Tick(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Tick: %v", err)
		}
		if n := r.count("cards WHERE status = 'generated'"); n != 16+32+32 {
			t.Errorf("%d cards were issued", n)
		}
	})
}

// If a batch can't be stored, Tick returns the error, and the next one finds
// the cards again.
func TestTick_BatchNotStored_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		cards := r.manyPaid(16 + 32 + 64 + 100)
		committed := 0
		r.store.commits = func(_ context.Context, commit func() error) error {
			if committed++; committed > 1 {
				return errFault
			}
			return commit()
		}
		if err := r.issuer.Tick(t.Context()); !errors.Is(err, errFault) {
			t.Errorf("Tick: %v", err)
		}
		if n := r.count("cards WHERE status = 'generated'"); n != 16 {
			t.Errorf("%d cards were issued", n)
		}
		r.store.commits = nil
		r.due()
		check(t, r.issuer.Tick(t.Context()))
		for _, c := range cards {
			r.wantCard(c)
		}
	})
}

func TestIssue_SlowSupplier_SixteenRequestsThenNone(t *testing.T) {
	for took, asked := range map[time.Duration]int{3 * time.Second: 32, 3*time.Second + 1: 16} {
		t.Run(took.String(), func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				r.grow()
				cards := r.manyPaid(32)
				var mu sync.Mutex
				var once sync.Once
				now, most, arrived := 0, 0, make(chan struct{})
				r.supplier.submit = func(ctx context.Context, q issue.Request) (issue.Answer, error) {
					mu.Lock()
					now++
					if most = max(most, now); now == 16 {
						once.Do(func() {
							time.AfterFunc(20*time.Millisecond, func() { // time for a 17th request to begin
								r.clock.pass(took)
								close(arrived)
							})
						})
					}
					mu.Unlock()
					select {
					case <-arrived:
					case <-time.After(5 * time.Second):
						t.Error("fewer than 16 concurrent requests")
					}
					mu.Lock()
					now--
					mu.Unlock()
					return r.supplier.make(ctx, q)
				}
				r.issue(32)
				if most != 16 || len(r.supplier.calls) != asked {
					t.Errorf("%d concurrent requests, %d in total", most, len(r.supplier.calls))
				}
				left := 32 - asked
				if n := r.count(
					"intents WHERE state = 'open' AND reason = 'the supplier is slow' AND first_asked_at IS NULL AND answer IS NULL"); n != left {
					t.Errorf("%d are left, want %d", n, left)
				}
				r.supplier.calls, r.supplier.submit = nil, nil
				check(t, r.issuer.Tick(t.Context())) // due at once, and submitted without a lookup
				if n := len(slices.DeleteFunc(r.supplier.calls, func(call string) bool { return call != "submit" })); n != left {
					t.Errorf("%d were submitted then, want %d", n, left)
				}
				for _, c := range cards {
					r.wantCard(c)
				}
			})
		})
	}
}

// Claimed cards are finished within a grace period, even if the process is
// stopped.
func TestIssue_Shutdown_ClaimedCardsFinished(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c, failing := r.paid(), r.paid()
		ctx, cancel := context.WithCancel(t.Context())
		started := time.Now()
		var answer, store time.Time
		r.supplier.submit = func(asking context.Context, q issue.Request) (issue.Answer, error) {
			cancel()
			if asking.Err() != nil {
				t.Error("the call was interrupted")
			}
			if q.Key == failing.UUID.String() {
				return issue.Answer{}, errFault
			}
			answer, _ = asking.Deadline()
			return r.supplier.make(asking, q)
		}
		r.store.commits = func(storing context.Context, commit func() error) error {
			store, _ = storing.Deadline()
			return commit()
		}
		n, err := r.issuer.IssueDue(ctx)
		if n != 2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		r.wantCard(c)
		r.want(failing, issue.StateOpen, "unknown", unclear)
		for what, tt := range map[string]struct{ took, want time.Duration }{
			"an answer": {answer.Sub(started), 15 * time.Second}, "a batch": {store.Sub(started), 20 * time.Second},
		} {
			if over := tt.took - tt.want; over < 0 || over > 5*time.Second {
				t.Errorf("%s may take %s, want %s", what, tt.took, tt.want)
			}
		}
	})
}

// An answer after the timeout is ignored.
func TestIssue_HangingSupplier_TimesOut(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		r.supplier.submit = func(ctx context.Context, _ issue.Request) (issue.Answer, error) {
			return issue.Answer{}, context.DeadlineExceeded
		}
		r.issue(1)
		r.want(c, issue.StateOpen, "unknown", unclear)
	})
}

// Waits double with each attempt, up to ten minutes, and are jittered.
func TestIssue_Retries_BackOff(t *testing.T) {
	for name, tt := range map[string]struct {
		answer handler
		state  string
		most   map[int]time.Duration // longest wait by number of attempts
	}{
		"after no clear answer": {unknown, "open",
			map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 10: 512 * time.Second,
				11: 10 * time.Minute, 20: 10 * time.Minute, 21: 10 * time.Minute, 1000: 10 * time.Minute}},
		"while it is pending": {pending, "pending",
			map[int]time.Duration{1: 4 * time.Second, 2: 8 * time.Second, 8: 512 * time.Second, 9: 10 * time.Minute,
				1000: 10 * time.Minute}},
		"while it is pending, and can't be looked up": {hangs, "pending",
			map[int]time.Duration{1: 4 * time.Second, 3: 16 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *fixture) {
				r.supplier.submit, r.supplier.lookup = tt.answer, tt.answer
				for attempts, most := range tt.most {
					cards := r.manyPaid(16)
					r.start() // a new process has no pause for this supplier

					// ignores earlier waits
					r.exec(fmt.Sprintf("UPDATE intents SET attempts = %d, state = '%s' WHERE state <> 'parked'", attempts-1, tt.state))
					r.store.waits = nil
					r.issue(16)
					slices.Sort(r.store.waits)
					least, longest := r.store.waits[0], r.store.waits[15]
					if least < most/2 || longest > most || longest-least < most/20 {
						t.Errorf("after %d attempts waits from %s to %s, want %s to %s", attempts, least, longest, most/2, most)
					}
					r.wantWait(cards[0], most/2, most)
					r.exec("UPDATE intents SET state = 'parked'")
				}
			})
		})
	}
}

func TestIssue_ProcessDied_ClaimExpiresWithinTenSeconds(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		r.paid()
		r.store.claims = func(claimed []issue.Intent, _ int, ttl time.Duration) []issue.Intent {
			if ttl != 8*time.Second {
				t.Errorf("claimed for %s", ttl)
			}
			return claimed
		}
		r.issue(1)
	})
}

func TestIssue_SlowSupplier_ClaimIsProlonged(t *testing.T) {
	onEach(t, func(t *testing.T, r *fixture) {
		c := r.paid()
		r.supplier.submit = after(func() {
			time.Sleep(3 * time.Second)
			r.wantWait(c, 6*time.Second, 8*time.Second) // 5 s if it were not prolonged
		}, r.supplier.make)
		r.issue(1)
		r.wantCard(c)
	})
}
