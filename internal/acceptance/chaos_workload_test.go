//go:build drill

package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
)

// workload buys cards while faults happen, and records all responses and
// events.
type workload struct {
	t       *testing.T
	clients []*client.Client // one for each replica
	nodes   *moneroNodes     // nil if the chain is simulated
	token   string
	secret  client.Secret

	buyers, others sync.WaitGroup
	closing        chan struct{} // closed to stop new orders
	stop           context.CancelFunc
	stopped        <-chan struct{}

	mu          sync.Mutex
	random      *rand.Rand
	nextReplica int // index of the next client
	orders      []*purchase
	sales       chan time.Time // receives when each acknowledged order was sent
	answers     map[string]int
	requests    int
	eventsBySeq map[int64]*client.Event // from the feed and the webhook
	deliveries  map[uuid.UUID]int       // by the webhook, by event

	resets, forgotten int // number of events
}

// purchase is the workload's record of an order. Only its buyer writes the
// fields above the lock.
type purchase struct {
	key     string
	usd     int64
	amounts []decimal.Decimal // payments in coins; none if it stays unpaid

	mu    sync.Mutex
	card  *client.Card                // as first acknowledged, nil before
	paid  map[string]*paymentAttempts // by amount
	shown *client.Credentials
}

// paymentAttempts counts the requests for one payment by result.
type paymentAttempts struct{ acknowledged, unclear int }

// startWorkload registers a webhook, follows the feed, and starts to buy cards.
func startWorkload(t *testing.T, urls []string, token string, seed uint64, pays *moneroNodes) *workload {
	t.Helper()
	s := &workload{t: t, token: token, nodes: pays, random: rand.New(rand.NewPCG(seed, 1)), closing: make(chan struct{}),
		sales:   make(chan time.Time),
		answers: map[string]int{}, eventsBySeq: map[int64]*client.Event{}, deliveries: map[uuid.UUID]int{}}
	for _, url := range urls {
		c, err := client.New(url, token, client.WithRetry(1, 0), client.WithAttemptTimeout(6*time.Second),
			client.WithHTTPClient(&http.Client{Transport: &countingTransport{workload: s, next: &http.Transport{}}}))
		if err != nil {
			t.Fatal(err)
		}
		s.clients = append(s.clients, c)
	}
	receiver := httptest.NewServer(http.HandlerFunc(s.receive))
	t.Cleanup(receiver.Close)
	made, err := s.clients[0].CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: receiver.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.secret = made.Secret
	ctx, stop := context.WithCancel(t.Context())
	s.stop, s.stopped = stop, ctx.Done()
	t.Cleanup(func() {
		stop()
		s.buyers.Wait()
		s.others.Wait()
	})
	for range 4 {
		s.buyers.Go(func() { s.buy(ctx) })
	}
	for range 2 {
		s.others.Go(func() { s.readCards(ctx) })
	}
	s.others.Go(func() { s.followFeed(ctx) })
	return s
}

// countingTransport counts responses by status.
type countingTransport struct {
	workload *workload
	next     http.RoundTripper
}

func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.next.RoundTrip(r)
	answer := "none"
	if err == nil {
		answer = fmt.Sprint(res.StatusCode)
	}
	c.workload.mu.Lock()
	defer c.workload.mu.Unlock()
	c.workload.requests++
	c.workload.answers[answer]++
	return res, err
}

// nextClient returns the clients in turn.
func (s *workload) nextClient() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextReplica++
	return s.clients[s.nextReplica%len(s.clients)]
}

func (s *workload) intN(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// pause waits for a random time up to most. It returns false if ctx ends
// before.
func (s *workload) pause(ctx context.Context, most time.Duration) bool {
	select {
	case <-time.After(time.Duration(s.intN(int(most)))):
		return true
	case <-ctx.Done():
		return false
	}
}

// failed reports whether a request must be repeated. A refusal that no fault
// explains fails the test.
func (s *workload) failed(ctx context.Context, err error, what string) bool {
	if refusal, refused := errors.AsType[*client.Error](err); refused &&
		refusal.Status != http.StatusServiceUnavailable && ctx.Err() == nil {
		s.t.Errorf("%s: %v", what, err)
		s.stop()
	}
	return err != nil
}

// buy orders cards and pays for most of them, until closing is closed.
func (s *workload) buy(ctx context.Context) {
	for s.pause(ctx, 1200*time.Millisecond) {
		select {
		case <-s.closing:
			return
		default:
		}
		b := s.newOrder()
		if !s.order(ctx, b) {
			return
		}
		for i, amount := range b.amounts {
			if !s.pay(ctx, b, amount, decimal.Sum(decimal.Zero, b.amounts[:i+1]...)) {
				return
			}
		}
	}
}

func (s *workload) newOrder() *purchase {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &purchase{key: fmt.Sprintf("order-%d", len(s.orders)), usd: 50 + s.random.Int64N(700), paid: map[string]*paymentAttempts{}}
	s.orders = append(s.orders, b)
	return b
}

// order repeats an order until it is acknowledged, and sometimes once more. It
// returns false if ctx ends before.
func (s *workload) order(ctx context.Context, b *purchase) bool {
	repeated := s.intN(5) == 0
	for {
		start := time.Now()
		card, err := s.nextClient().CreateCard(ctx,
			client.CreateCardRequest{USDAmount: decimal.NewFromInt(b.usd), Currency: "monero"}, client.WithIdempotencyKey(b.key))
		if s.failed(ctx, err, b.key) {
			if !s.pause(ctx, 600*time.Millisecond) {
				return false
			}
			continue
		}
		s.acknowledge(b, card, start)
		if !repeated {
			break
		}
		repeated = false
	}
	amount := b.card.Payment.Amount
	switch third := amount.DivRound(decimal.NewFromInt(3), 12); s.intN(5) {
	case 0: // stays unpaid
	case 1:
		b.amounts = []decimal.Decimal{third, amount.Sub(third)}
	default:
		b.amounts = []decimal.Decimal{amount}
	}
	return true
}

// acknowledge records the response to an order.
func (s *workload) acknowledge(b *purchase, card *client.Card, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.card == nil {
		b.card = card
	} else if diff := cmp.Diff(b.card, card); diff != "" {
		s.t.Errorf("%s: two responses differ: %s", b.key, diff)
	}
	select {
	case s.sales <- sent:
	default: // no awaitSale is waiting
	}
}

// awaitSale returns the time until an order is acknowledged that was sent after
// the call.
func (s *workload) awaitSale(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	limit := time.After(90 * time.Second)
	for {
		select {
		case sent := <-s.sales:
			if sent.After(start) {
				return time.Since(start)
			}
		case <-s.stopped:
			return 0
		case <-limit:
			t.Fatal("no sale within 90 s of the end of all faults")
		}
	}
}

// pay repeats a payment until it is acknowledged, or until the card has
// received total. It returns false if ctx ends before.
func (s *workload) pay(ctx context.Context, b *purchase, amount, total decimal.Decimal) bool {
	p := &paymentAttempts{}
	b.mu.Lock()
	b.paid[amount.String()] = p
	b.mu.Unlock()
	if s.nodes != nil {
		for !s.nodes.pay(b.card.Payment.Address, amount) {
			if !s.pause(ctx, time.Second) {
				return false
			}
		}
		p.acknowledged++
		return true
	}
	for {
		card, err := s.nextClient().SimulatePayment(ctx, b.card.UUID, client.SimulatePaymentRequest{Amount: &amount})
		if !s.failed(ctx, err, "pay for an acknowledged card") {
			p.acknowledged++
			s.checkCard(b, card)
			return true
		}
		p.unclear++
		for range 6 { // the payment may have succeeded without an answer
			if !s.pause(ctx, time.Second) {
				return false
			}
			if card, err := s.nextClient().GetCard(ctx, b.card.UUID); !s.failed(ctx, err, "read an acknowledged card") {
				s.checkCard(b, card)
				if card.Payment.AmountReceived.GreaterThanOrEqual(total) {
					return true
				}
			}
		}
	}
}

// readCards reads random cards.
func (s *workload) readCards(ctx context.Context) {
	for s.pause(ctx, 400*time.Millisecond) {
		s.mu.Lock()
		n := len(s.orders)
		s.mu.Unlock()
		if n == 0 {
			continue
		}
		i := s.intN(n)
		if s.intN(2) == 0 { // one of the newest
			i = max(0, n-1-s.intN(10))
		}
		s.mu.Lock()
		b := s.orders[i]
		s.mu.Unlock()
		if id, made := b.id(); made {
			if card, err := s.nextClient().GetCard(ctx, id); !s.failed(ctx, err, "read an acknowledged card, "+id.String()) {
				s.checkCard(b, card)
			}
		}
	}
}

func (b *purchase) id() (uuid.UUID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.card == nil {
		return uuid.Nil, false
	}
	return b.card.UUID, true
}

// checkCard compares a card with its first response.
func (s *workload) checkCard(b *purchase, card *client.Card) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if card.UUID != b.card.UUID || card.Payment.Address != b.card.Payment.Address ||
		!card.Payment.Amount.Equal(b.card.Payment.Amount) {
		s.t.Errorf("%s changed from card %v to %v", b.key, b.card, card)
	}
	if card.Status == client.CardStatusGenerated && b.shown == nil {
		b.shown = &card.Credentials
	}
	// A delayed response may still show the card without credentials.
	if card.Status == client.CardStatusGenerated && *b.shown != card.Credentials {
		s.t.Errorf("%s: the credentials changed", b.key)
	}
}

// receive handles webhook requests.
func (s *workload) receive(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e, err := client.ParseWebhook(body, r.Header, s.secret)
	if err != nil {
		if r.Context().Err() == nil && len(body) == int(r.ContentLength) {
			s.t.Errorf("webhook: %v", err)
		}
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.recordEvent(e, "webhook")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliveries[e.ID]++
}

// recordEvent fails the test if a number has belonged to another event.
func (s *workload) recordEvent(e *client.Event, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.eventsBySeq[e.Seq]; known == nil {
		s.eventsBySeq[e.Seq] = e
	} else if diff := cmp.Diff(known, e); diff != "" {
		s.t.Errorf("event %d differs in the %s: %s", e.Seq, from, diff)
	}
}

// followFeed follows the feed as the contract describes.
func (s *workload) followFeed(ctx context.Context) {
	for last := int64(0); s.pause(ctx, time.Second); {
		for e, err := range s.nextClient().Events(ctx, last) {
			if refusal, refused := errors.AsType[*client.Error](err); refused &&
				refusal.Code == client.ProblemCodeInvalidRequest {
				break // the service lost the event and will reset the feed
			}
			if s.failed(ctx, err, "feed") {
				break
			}
			if e.Seq != last+1 && (e.Type != client.EventTypeFeedReset || e.Seq <= last) {
				s.t.Errorf("event %d, %s, follows event %d", e.Seq, e.Type, last)
			}
			last = e.Seq
			s.recordEvent(e, "feed")
		}
	}
}

// finish waits until all orders are acknowledged and paid.
func (s *workload) finish(t *testing.T) {
	t.Helper()
	close(s.closing)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.buyers.Wait()
	}()
	select {
	case <-done:
	case <-time.After(90 * time.Second):
		t.Fatal("orders were not finished within 90 s of the end of all faults")
	}
	s.stop()
	s.others.Wait()
}

func (s *workload) report(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := 0
	for answer, n := range s.answers {
		if answer >= "500" && answer < "600" {
			failed += n
		}
	}
	t.Logf("%d orders; %d requests: %.1f %% got 5xx, %.1f %% no response; responses by status: %v",
		len(s.orders), s.requests,
		100*float64(failed)/float64(s.requests), 100*float64(s.answers["none"])/float64(s.requests), sorted(s.answers))
}

func sorted(counts map[string]int) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s: %d", name, counts[name]))
	}
	return list
}
