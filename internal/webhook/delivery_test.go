package webhook_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/webhook"
)

// The waits that the contract promises between the ten attempts.
var waits = []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour,
	20 * time.Hour, 24 * time.Hour}

// about is the relative tolerance of a wait.
const about = time.Millisecond

func failure(status int) webhook.Attempt { return webhook.Attempt{At: epoch, Status: status} }

func pending() webhook.Delivery {
	return webhook.Delivery{Event: card.Event{Seq: 7}, State: webhook.DeliveryPending, DueAt: epoch}
}

func TestDelivery_Failure_FollowsSchedule(t *testing.T) {
	for _, tt := range []struct{ chance, factor float64 }{{0, 0.8}, {0.5, 1}, {math.Nextafter(1, 0), 1.2}} {
		d, now := pending(), epoch
		for i, wait := range waits {
			d = d.After(failure(500), now, tt.chance)
			want := time.Duration(tt.factor * float64(wait))
			if got := d.DueAt.Sub(now); got < want-about || got > want+about {
				t.Errorf("chance %v, after attempt %d: waits %v, want %v", tt.chance, i+1, got, want)
			}
			if d.State != webhook.DeliveryPending || d.Tries != i+1 || len(d.Attempts) != i+1 {
				t.Errorf("chance %v, after attempt %d: %s, %d tries, %d attempts", tt.chance, i+1, d.State, d.Tries,
					len(d.Attempts))
			}
			now = d.DueAt
		}
		d = d.After(failure(500), now, tt.chance)
		if d.State != webhook.DeliveryFailed || !d.DueAt.IsZero() || d.Tries != 10 || len(d.Attempts) != 10 {
			t.Errorf("after the tenth attempt: %s, due %v, %d tries, %d attempts", d.State, d.DueAt, d.Tries, len(d.Attempts))
		}
	}
}

func TestDelivery_ManyFailures_AreRetriedWithJitter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for try, wait := range waits {
		low, concurrency := time.Duration(0.8*float64(wait)), time.Duration(0.4*float64(wait))
		var tenths [10]int
		for range 1000 {
			d := pending()
			d.Tries = try
			got := d.After(failure(503), epoch, random.Float64()).DueAt.Sub(epoch)
			if got < low-about || got >= low+concurrency+about {
				t.Fatalf("waits %v, want from %v to %v", got, low, low+concurrency)
			}
			tenths[min(9, max(0, int(10*(got-low)/concurrency)))]++
		}
		for i, n := range tenths {
			if n < 50 || n > 200 {
				t.Errorf("after attempt %d: %d of 1000 wait for tenth %d of %v", try+1, n, i, concurrency)
			}
		}
	}
}

func TestDelivery_RetryAfter_DelaysRetry(t *testing.T) {
	for name, tt := range map[string]struct {
		tries       int
		asked, want time.Duration
	}{
		"none":                       {0, 0, 5 * time.Second},
		"shorter than the schedule":  {1, time.Minute, 5 * time.Minute},
		"as long as the schedule":    {1, 5 * time.Minute, 5 * time.Minute},
		"longer than the schedule":   {0, time.Hour, time.Hour},
		"a day":                      {0, 24 * time.Hour, 24 * time.Hour},
		"more than a day":            {0, 24*time.Hour + 1, 24 * time.Hour},
		"maximum":                    {0, math.MaxInt64, 24 * time.Hour},
		"negative":                   {0, -time.Hour, 5 * time.Second},
		"shorter than the last wait": {8, 23 * time.Hour, 24 * time.Hour},
		"no attempts left":           {9, time.Hour, 0},
		"slightly shorter":           {3, 2*time.Hour - 1, 2 * time.Hour},
	} {
		a := failure(429)
		a.RetryAfter = tt.asked
		d := pending()
		d.Tries = tt.tries
		d = d.After(a, epoch, 0.5)
		if tt.want == 0 {
			if d.State != webhook.DeliveryFailed || !d.DueAt.IsZero() {
				t.Errorf("%s: %s, due %v", name, d.State, d.DueAt)
			}
			continue
		}
		if got := d.DueAt.Sub(epoch); d.State != webhook.DeliveryPending || got != tt.want {
			t.Errorf("%s: %s, waits %v, want %v", name, d.State, got, tt.want)
		}
	}
}

// Only 2xx means that the receiver accepted the event. A redirect is not
// followed, so it delivers nothing.
func TestDelivery_OnlyStatus2xx_IsDelivered(t *testing.T) {
	for status, want := range map[int]webhook.DeliveryState{
		200: webhook.DeliveryDelivered, 201: webhook.DeliveryDelivered, 202: webhook.DeliveryDelivered,
		204: webhook.DeliveryDelivered, 299: webhook.DeliveryDelivered,
		0: webhook.DeliveryPending, 100: webhook.DeliveryPending, 199: webhook.DeliveryPending, 300: webhook.DeliveryPending,
		301: webhook.DeliveryPending,
		304: webhook.DeliveryPending, 307: webhook.DeliveryPending, 400: webhook.DeliveryPending,
		401: webhook.DeliveryPending, 404: webhook.DeliveryPending,
		410: webhook.DeliveryPending, 429: webhook.DeliveryPending, 500: webhook.DeliveryPending,
		503: webhook.DeliveryPending, 2000: webhook.DeliveryPending,
	} {
		for _, tries := range []int{0, 4, 9} {
			d := pending()
			d.Tries = tries
			a := failure(status)
			a.RetryAfter = time.Hour
			d = d.After(a, epoch, 0)
			want := want
			if want == webhook.DeliveryPending && tries == 9 {
				want = webhook.DeliveryFailed
			}
			if d.State != want || d.DueAt.IsZero() != (want != webhook.DeliveryPending) || d.Tries != tries+1 {
				t.Errorf("%d after %d tries: %s, due %v, %d tries", status, tries, d.State, d.DueAt, d.Tries)
			}
		}
	}
}

func TestAttempt_Unreachable_Statuses(t *testing.T) {
	for status := range 1000 {
		want := status == 0 || status == 408 || status == 429 || status >= 500 && status < 600
		if got := failure(status).Unreachable(); got != want {
			t.Errorf("%d: %t", status, got)
		}
	}
}

func TestDelivery_ManyAttempts_KeepsLastTwenty(t *testing.T) {
	d := pending()
	var want []webhook.Attempt
	for i := range 47 {
		a := failure(500)
		a.Took = time.Duration(i)
		want = append(want, a)
		d.Tries %= 10 // redelivered
		d = d.After(a, epoch, 0)
	}
	if diff := cmp.Diff(want[27:], d.Attempts); diff != "" {
		t.Error(diff)
	}
}

// After a lost claim, two processes may append attempts to the same delivery.
// They must not share a backing array.
func TestDelivery_After_DoesNotChangeReceiver(t *testing.T) {
	for _, n := range []int{0, 1, 19, 20, 25} {
		before := make([]webhook.Attempt, n, n+50) // with spare capacity that append would use
		for i := range before {
			before[i] = failure(500 + i)
		}
		d := pending()
		d.Attempts = before
		one, two := d.After(failure(201), epoch, 0), d.After(failure(404), epoch, 0)
		if got := one.Attempts[len(one.Attempts)-1].Status; got != 201 {
			t.Errorf("of %d: overwritten by another attempt: %d", n, got)
		}
		if got := two.Attempts[len(two.Attempts)-1].Status; got != 404 {
			t.Errorf("of %d: %d", n, got)
		}
		if want := min(n+1, 20); len(one.Attempts) != want {
			t.Errorf("of %d: %d attempts are kept, want %d", n, len(one.Attempts), want)
		}
		for i, a := range before[:cap(before)][:n+1] {
			if want := 500 + i; i < n && a.Status != want || i == n && a.Status != 0 {
				t.Errorf("of %d: attempt %d became %d", n, i, a.Status)
			}
		}
		if d.State != webhook.DeliveryPending || d.Tries != 0 || len(d.Attempts) != n || !d.DueAt.Equal(epoch) {
			t.Errorf("of %d: the delivery changed: %+v", n, d)
		}
	}
}
