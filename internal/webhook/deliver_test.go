package webhook_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// attempted returns the times of the first attempts at a webhook's deliveries,
// relative to start, in order.
func (s *fixture) attempted(id uuid.UUID, start time.Time) []time.Duration {
	s.t.Helper()
	var all []time.Duration
	for _, d := range s.deliveries(id) {
		if len(d.Attempts) > 0 {
			all = append(all, d.Attempts[0].At.Sub(start))
		}
	}
	slices.Sort(all)
	return all
}

func TestSender_RecoveredReceiver_IsNotOverrun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rate   float64
		events int
		atOnce int           // concurrent requests
		each   time.Duration // the intervals between attempts
	}{
		"fifty a second":        {50, 70, 50, 20 * time.Millisecond},
		"one in four seconds":   {0.25, 3, 1, 4 * time.Second},
		"two hundred, if unset": {0, 210, 200, 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(t *testing.T, s *fixture, r *receiver) {
				s.cfg.Rate = tt.rate
				s.open()
				w, _ := s.createWebhook(r.URL)
				s.insertEvents(tt.events)
				start := time.Now()
				s.deliver()
				at := s.attempted(w.ID, start)
				if len(at) != tt.events || len(r.all()) != tt.events {
					t.Fatalf("%d attempts, %d requests, want %d", len(at), len(r.all()), tt.events)
				}
				for i, got := range at {
					want := max(0, time.Duration(i+1-tt.atOnce)*tt.each)
					if got < want-2*time.Millisecond || got > want+2*time.Millisecond {
						t.Errorf("request %d after %v, want %v", i+1, got, want)
					}
				}
			})
		})
	}
}

// Deliveries are sent and stored in batches: large ones while the receiver
// accepts them, for throughput, and small ones while it fails, so that few are
// repeated after a change or a crash.
func TestSender_BatchesGrowOnSuccessAndShrinkOnFailure(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rate   float64
		events int
		answer func(n int) int
		want   string // calls to the store
	}{
		"to a quarter of a second":  {200, 190, nil, "due 8, due 32, due 50, due 50, due 50, due 50"},
		"to the maximum":            {4000, 200, nil, "due 8, due 32, due 128, due 500, due 500"},
		"not after a partial batch": {200, 20, nil, "due 8, due 32, due 32"},
		"one failure": {200, 260, func(n int) int {
			if n == 205 { // the rate spaces the requests here, so the failure is noticed before the next one
				return 503
			}
			return 200
		}, "due 8, due 32, due 50, due 50, due 50, due 50, due 25, due 50, due 50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, tt.answer, func(t *testing.T, s *fixture, r *receiver) {
				s.cfg.Rate = tt.rate
				s.open()
				s.createWebhook(r.URL)
				s.insertEvents(tt.events)
				s.deliver()
				calls := slices.DeleteFunc(s.took(), func(c string) bool {
					return !strings.HasPrefix(c, "due") && !strings.HasPrefix(c, "retries")
				})
				if diff := cmp.Diff(strings.Split(tt.want, ", "), calls); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestSender_Gone_StopsBatch(t *testing.T) {
	t.Parallel()
	answer := func(n int) int {
		if n >= 205 { // in a batch of fifty, where the rate spaces the requests
			return 410
		}
		return 200
	}
	inBubble(t, answer, func(t *testing.T, s *fixture, r *receiver) {
		w, _ := s.createWebhook(r.URL)
		s.insertEvents(260)
		s.deliver()
		if n := len(r.all()) - 205; n < 1 || n > 8 || s.webhook(w.ID).Enabled {
			t.Errorf("%d requests to a receiver that is gone, want only those in flight", n)
		}
	})
}

func TestSender_UnreachableReceiver_GetsOneRequestAtATime(t *testing.T) {
	t.Parallel()
	inBubble(t, func(int) int { return 503 }, func(t *testing.T, s *fixture, r *receiver) {
		s.createWebhook(r.URL)
		s.insertEvents(1)
		s.deliver()
		s.insertEvents(20)
		s.took()
		s.deliver()
		want := []string{"claim 64 for 34s", "retries 8", "due 8", "due 8", "release"}
		if calls := s.took(); len(r.all()) != 3 || !slices.Equal(calls, want) {
			t.Errorf("%d requests, want 1 and then 2; %v", len(r.all()), calls)
		}
	})
}

// A receiver with a long backlog releases its slot after ten seconds.
func TestSender_ClaimEndsAfterTenSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *fixture, r *receiver) {
		wakes := 0
		s.cfg.Rate, s.wake = 1, func() { wakes++ }
		s.open()
		w, _ := s.createWebhook(r.URL)
		s.insertEvents(30)
		start := time.Now()
		s.deliver()
		if took := time.Since(start).Round(time.Millisecond); len(r.all()) != 16 || took != 15*time.Second {
			t.Errorf("%d requests in %v, want two rounds of eight in 15 s", len(r.all()), took)
		}
		if wakes != 1 {
			t.Errorf("woke the sender %d times, want 1", wakes)
		}
		s.deliver()
		if at := s.attempted(w.ID, start); len(at) != 30 {
			t.Errorf("%d of 30 were sent after the second claim", len(at))
		}
		time.Sleep(10 * time.Second)
		s.insertEvents(11) // which take exactly ten seconds
		s.took()
		s.deliver()
		if calls := s.took(); !slices.Equal(calls, []string{"claim 64 for 34s", "due 8", "due 8", "release"}) {
			t.Errorf("%v", calls)
		}
	})
}

// A client's change takes effect in the next batch, so batches must be short:
// no attempt starts after a quarter of a second.
func TestSender_SlowReceiver_EndsBatchSoon(t *testing.T) {
	t.Parallel()
	answer := func(n int) int {
		if n == 0 {
			return 503 // makes the next requests sequential
		}
		return 200
	}
	inBubble(t, answer, func(t *testing.T, s *fixture, r *receiver) {
		s.cfg.Rate = 4
		s.open()
		s.createWebhook(r.URL)
		s.insertEvents(1)
		s.deliver()
		s.insertEvents(20)
		var stored []int // number of requests at each commit of a batch
		s.around = func(do func() error) error {
			stored = append(stored, len(r.all())-1)
			return do()
		}
		s.deliver()
		// A burst of four, one after a quarter of a second, and one already in
		// flight; later batches have eight workers.
		if !slices.Equal(stored, []int{6, 14, 20}) {
			t.Errorf("stored after %v requests", stored)
		}
	})
}

// A database restart loses neither the attempts during it nor the rest of the
// claim.
func TestSender_DatabaseAway_StoresAttemptsLater(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *fixture, r *receiver) {
		w, _ := s.createWebhook(r.URL)
		s.insertEvents(50)
		times := 0
		s.around = func(do func() error) error {
			times++
			switch times {
			case 1, 2: // failed
				return errStore
			case 3: // failed, but was committed
				return errors.Join(do(), errStore)
			}
			return do()
		}
		start := time.Now()
		s.deliver()
		if n := len(r.all()); n != 50 || times < 4 {
			t.Errorf("%d requests for 50 events, %d transactions", n, times)
		}
		if took := time.Since(start); took != 700*time.Millisecond {
			t.Errorf("took %v, want waits of 100, 200 and 400 ms", took)
		}
		for _, d := range s.deliveries(w.ID) {
			if d.State != webhook.DeliveryDelivered || len(d.Attempts) != 1 {
				t.Errorf("delivery of event %d is %s after %d attempts", d.Event.Seq, d.State, len(d.Attempts))
			}
		}
		if text := s.log.String(); strings.Count(text, "stored late") != 1 {
			t.Errorf("logged: %s", text)
		}
	})
}

// Near the end of a claim nothing is stored, because another process may claim
// the webhook next.
func TestSender_DatabaseAway_StopsTenSecondsBeforeClaimEnds(t *testing.T) {
	t.Parallel()
	const safe = 2*timeout + 30*time.Second - 10*time.Second // attempts are stored until then
	for name, tt := range map[string]struct {
		rate  float64
		fails int           // first failing transaction; all later ones fail too
		from  time.Duration // last renewal of the claim
		begun time.Duration // start of that transaction
		tries int
	}{
		"from the claim":        {200, 1, 0, 0, 16},
		"from the last renewal": {1, 2, 7 * time.Second, 15 * time.Second, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(t *testing.T, s *fixture, r *receiver) {
				s.cfg.Rate = tt.rate
				s.open()
				s.createWebhook(r.URL)
				s.insertEvents(16)
				s.took()
				times := 0
				var first, last time.Duration
				start := time.Now()
				s.around = func(do func() error) error {
					if times++; times < tt.fails {
						return do()
					}
					last = time.Since(start).Round(time.Millisecond)
					if times == tt.fails {
						first = last
					}
					return errStore
				}
				s.deliver()
				if n := times - tt.fails + 1; first != tt.begun || n != tt.tries || last >= tt.from+safe ||
					last < tt.from+safe-2*time.Second {
					t.Errorf("attempted %d times, from %v to %v", n, first, last)
				}
				if slices.Contains(s.took(), "release") {
					t.Error("the claim was released: another process would repeat everything immediately")
				}
				if text := s.log.String(); !strings.Contains(text, `level=ERROR msg="webhook deliveries failed"`) ||
					strings.Contains(text, "stored late") {
					t.Errorf("logged: %s", text)
				}
			})
		})
	}
}

func TestSender_StoreFails_IsLogged(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]struct {
		sent     int
		released bool
		logged   string
	}{
		"DueDeliveries":  {0, false, `level=ERROR msg="webhook deliveries failed"`},
		"DueRetries":     {1, false, `level=ERROR msg="webhook deliveries failed"`},
		"ReleaseWebhook": {1, true, `level=WARN msg="webhook not released"`},
		"nothing":        {1, true, ""},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(int) int { return 503 }, func(t *testing.T, s *fixture, r *receiver) {
				s.createWebhook(r.URL)
				s.insertEvents(1)
				s.took()
				s.fails = method
				s.deliver()
				if n := len(r.all()); n != want.sent {
					t.Errorf("%d requests, want %d", n, want.sent)
				}
				if got := slices.Contains(s.took(), "release"); got != want.released {
					t.Errorf("released: %t", got)
				}
				if text := s.log.String(); !strings.Contains(text, want.logged) || (text == "") != (want.logged == "") {
					t.Errorf("logged: %s", text)
				}
			})
		})
	}
}

// A client's change to a webhook during a delivery causes no error.
func TestSender_LostClaim_IsNotLogged(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *fixture, r *receiver) {
		s.createWebhook(r.URL)
		s.insertEvents(1)
		s.around = func(func() error) error { return card.ErrFenced }
		s.deliver()
		if text := s.log.String(); text != "" || !slices.Contains(s.took(), "release") {
			t.Errorf("logged: %s", text)
		}
	})
}

func TestSender_Shutdown_StoresRunningAttempts(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *fixture, r *receiver) {
		s.cfg.Rate = 1
		s.open()
		w, _ := s.createWebhook(r.URL)
		s.insertEvents(30)
		ctx, end := context.WithCancel(t.Context())
		check(t, s.sender.Tick(ctx))
		time.Sleep(2500 * time.Millisecond)
		end()
		start := time.Now()
		check(t, s.sender.Close(t.Context()))
		if took := time.Since(start); took != 0 || len(r.all()) != 3 {
			t.Errorf("%d requests, then a shutdown of %v", len(r.all()), took)
		}
		delivered := 0
		for _, d := range s.deliveries(w.ID) {
			if d.State == webhook.DeliveryDelivered {
				delivered++
			}
		}
		if delivered != 3 || !slices.Contains(s.took(), "release") {
			t.Errorf("%d of 3 are stored", delivered)
		}
	})
}

// holdTurns makes every turn wait until the test sends a value or ends. Each
// turn then finds no due delivery.
func (s *fixture) holdTurns(t *testing.T) (end chan struct{}) {
	end = make(chan struct{})
	s.due = func(uuid.UUID) ([]webhook.Delivery, error) {
		<-end
		return nil, nil
	}
	t.Cleanup(func() { close(end) })
	return end
}

// hooks inserts n webhooks of several accounts, each with a due event.
func (s *fixture) hooks(n int) {
	s.t.Helper()
	for n > 0 {
		c := insertCard(s.t, s.store, newAccount(s.t, s.store))
		check(s.t, s.store.WebhookTx(s.t.Context(), func(tx webhook.Tx) error {
			for range min(n, 16) {
				w := newWebhook(c.AccountID)
				sealed, err := s.vault.Seal(w.ID, w.AccountID, "webhook_secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
				if w.Sealed = sealed; err != nil {
					return err
				}
				if err := tx.InsertWebhook(s.t.Context(), w); err != nil {
					return err
				}
			}
			return tx.InsertEvents(s.t.Context(), []card.Event{newEvent(c, card.EventLate)})
		}))
		n -= 16
	}
}

// claims returns the claims among the calls to the store.
func (s *fixture) claims() string {
	calls := slices.DeleteFunc(s.took(), func(c string) bool { return !strings.HasPrefix(c, "claim") })
	return strings.Join(calls, ", ")
}

func TestTick_ClaimsOnlyFreeSlots(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *fixture, _ *receiver) {
		s.cfg.Concurrency = 2
		s.open()
		s.hooks(5)
		end := s.holdTurns(t)
		for _, want := range []string{"claim 2 for 34s", "", "claim 1 for 34s", ""} {
			check(t, s.sender.Tick(t.Context()))
			synctest.Wait()
			if got := s.claims(); got != want {
				t.Errorf("claims %q, want %q", got, want)
			}
			if want == "" {
				end <- struct{}{} // one webhook has no more due deliveries
				synctest.Wait()
			}
		}
	})
}

func TestTick_ManyWebhooks_ServesAll(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		atOnce, hooks int
		want          string
	}{
		"fewer than slots":    {4, 3, "claim 4 for 34s"},
		"as many as slots":    {4, 4, "claim 4 for 34s"},
		"one full claim":      {0, 64, "claim 64 for 34s, claim 64 for 34s"},
		"more than one claim": {70, 80, "claim 64 for 34s, claim 6 for 34s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(t *testing.T, s *fixture, _ *receiver) {
				s.cfg.Concurrency = tt.atOnce
				s.open()
				s.hooks(tt.hooks)
				s.holdTurns(t)
				check(t, s.sender.Tick(t.Context()))
				if got := s.claims(); got != tt.want {
					t.Errorf("claims %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestTick_StoreFails_ReturnsError(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *fixture, r *receiver) {
		s.createWebhook(r.URL)
		s.insertEvents(1)
		s.fails = "ClaimWebhooks"
		wantError(t, s.sender.Tick(t.Context()), card.ErrUnavailable)
		s.fails = ""
		s.took()
		ended, end := context.WithCancel(t.Context())
		end()
		check(t, s.sender.Tick(ended))
		if calls := s.took(); len(calls) > 0 {
			t.Errorf("after shutdown: %v", calls)
		}
	})
}

func TestClose_ContextEnds_Returns(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *fixture, _ *receiver) {
		s.hooks(1)
		end := s.holdTurns(t)
		check(t, s.sender.Tick(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantError(t, s.sender.Close(ctx), context.DeadlineExceeded)
		end <- struct{}{}
		check(t, s.sender.Close(t.Context()))
	})
}
