//go:build drill

package acceptance_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// verify compares the final state of the service with its answers and events.
func (c *chaos) verify() {
	t, s := c.t, c.workload
	t.Helper()
	ledger := c.ledger()
	// Cards that wait because the supplier failed are retried immediately.
	c.database().Exec(t, "UPDATE intents SET due_at = 0 WHERE state IN ('open', 'pending')")
	cards := c.awaitIssuedCards(ledger)
	issued := c.verifyCards(cards, ledger)
	c.verifySupplier(cards, issued, ledger)
	c.verifyEvents(issued)
	wantOutput(t, c.program.reconcile(t), fmt.Sprintf("%d issued, %d paid", len(issued), len(issued)))
	epochs := c.database().Value(t, "SELECT count(*) FROM epochs")
	t.Logf("%d cards, %d of them issued; %d events, %d of them feed.reset, %d forgotten; %s epochs", len(s.orders),
		len(issued),
		len(s.eventsBySeq), s.resets, s.forgotten, epochs)
}

// awaitIssuedCards waits until all paid cards are issued, and returns all cards
// of the account.
func (c *chaos) awaitIssuedCards(ledger ledger) map[uuid.UUID]*client.Card {
	c.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		cards := map[uuid.UUID]*client.Card{}
		waiting := 0
		for card, err := range newClient(c.t, c.replicas[0].url, c.workload.token).ListCards(c.t.Context(),
			client.ListCardsOptions{}) {
			if err != nil {
				c.t.Fatal(err)
			}
			if cards[card.UUID] != nil {
				c.t.Errorf("card %s is listed twice", card.UUID)
			}
			cards[card.UUID] = card
		}
		for _, card := range cards {
			if ledger.isPaid(card) && card.Status != client.CardStatusGenerated {
				waiting++
			}
		}
		if waiting == 0 {
			return cards
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%d paid cards are not issued", waiting)
		}
	}
}

// verifyCards checks each order, and returns the issued cards.
func (c *chaos) verifyCards(cards map[uuid.UUID]*client.Card, ledger ledger) map[uuid.UUID]*client.Card {
	t := c.t
	t.Helper()
	addresses, numbers := map[string]string{}, map[string]string{}
	issued := map[uuid.UUID]*client.Card{}
	for _, b := range c.workload.orders {
		card := cards[b.card.UUID]
		if card == nil {
			t.Errorf("%s was acknowledged, but card %s is lost", b.key, b.card.UUID)
			continue
		}
		c.workload.checkCard(b, card)
		if other := addresses[card.Payment.Address]; other != "" {
			t.Errorf("%s and %s have the same address", b.key, other)
		}
		addresses[card.Payment.Address] = b.key
		c.verifyPayments(b, card, ledger)
		if card.Status == client.CardStatusGenerated {
			issued[card.UUID] = card
			if other := numbers[card.Credentials.CardNumber]; other != "" || card.Credentials.CardNumber == "" {
				t.Errorf("%s has the card number of %s", b.key, other)
			}
			numbers[card.Credentials.CardNumber] = b.key
		}
	}
	if len(cards) != len(c.workload.orders) {
		t.Errorf("%d orders made %d cards", len(c.workload.orders), len(cards))
	}
	return issued
}

// verifyPayments compares the payments that the workload made with those on the
// chain, and with the amount that the card was credited.
func (c *chaos) verifyPayments(b *purchase, card *client.Card, ledger ledger) {
	c.t.Helper()
	arrived := ledger[card.Payment.Address]
	for amount := range arrived {
		if b.paid[coins(amount).String()] == nil {
			c.t.Errorf("%s: unexpected payment of %s", b.key, coins(amount))
		}
	}
	for text, p := range b.paid {
		n := arrived[decimal.RequireFromString(text).Mul(piconero).IntPart()]
		if n < p.acknowledged || n > p.acknowledged+p.unclear {
			c.t.Errorf("%s: payment of %s: %d acknowledged, %d unclear, %d on the chain", b.key,
				text,
				p.acknowledged, p.unclear, n)
		}
	}
	if sum := ledger.received(card); !card.Payment.AmountReceived.Equal(sum) {
		c.t.Errorf("%s received %s, but was credited %s", b.key, sum, card.Payment.AmountReceived)
	}
	if (card.Status == client.CardStatusGenerated) != ledger.isPaid(card) {
		c.t.Errorf("%s is %s after payments of %v", b.key, card.Status, b.amounts)
	}
}

// ledger counts the payments to an address by amount, in piconero.
type ledger map[string]map[int64]int

func coins(amount int64) decimal.Decimal { return decimal.New(amount, -12) }

func (l ledger) received(card *client.Card) decimal.Decimal {
	sum := decimal.Zero
	for amount, n := range l[card.Payment.Address] {
		sum = sum.Add(coins(amount * int64(n)))
	}
	return sum
}

func (l ledger) isPaid(card *client.Card) bool {
	return l.received(card).GreaterThanOrEqual(card.Payment.Amount)
}

// ledger returns the payments on the simulated chain, or the payments sent on
// the real one.
func (c *chaos) ledger() ledger {
	c.t.Helper()
	if c.nodes != nil {
		return c.nodes.sent
	}
	rows, err := rig.OpenSQL(c.t,
		c.database().URL("postgres")).Query("SELECT address, amount, count(*) FROM simulated_transfers GROUP BY 1, 2")
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	sent := ledger{}
	for rows.Next() {
		var address string
		var amount int64
		var n int
		if err := rows.Scan(&address, &amount, &n); err != nil {
			c.t.Fatal(err)
		}
		if sent[address] == nil {
			sent[address] = map[int64]int{}
		}
		sent[address][amount] = n
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	return sent
}

// verifyEvents reads the feed from its beginning, and waits until the webhook
// has received all of it.
func (c *chaos) verifyEvents(issued map[uuid.UUID]*client.Card) {
	t, s := c.t, c.workload
	t.Helper()
	feed := map[int64]*client.Event{}
	generated := map[uuid.UUID]int{}
	last := int64(0)
	for e, err := range newClient(t, c.replicas[0].url, s.token).Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == client.EventTypeFeedReset {
			s.resets++
		} else if e.Seq != last+1 {
			t.Errorf("feed: event %d follows event %d", e.Seq, last)
		}
		last = e.Seq
		feed[e.Seq] = e
		s.recordEvent(e, "feed in the end")
		if e.Type == client.EventTypeCardGenerated {
			generated[e.CardUUID]++
		}
	}
	c.awaitDeliveries(feed)
	c.verifyForgotten(feed)
	for id := range issued {
		if generated[id] != 1 {
			t.Errorf("card %s has %d card.generated events", id, generated[id])
		}
	}
	if len(generated) != len(issued) {
		t.Errorf("%d cards are issued, but %d have a card.generated event", len(issued), len(generated))
	}
}

// verifyForgotten checks events that were delivered but are missing in the
// feed. After a crash, a primary shows commits that no standby has yet. If it
// then fails permanently, they are lost. In that case, the next event in the
// feed must be a reset.
func (c *chaos) verifyForgotten(feed map[int64]*client.Event) {
	t, s := c.t, c.workload
	t.Helper()
	numbers := slices.Sorted(maps.Keys(feed))
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, e := range s.eventsBySeq {
		if feed[seq] != nil {
			continue
		}
		s.forgotten++
		i, _ := slices.BinarySearch(numbers, seq)
		if i == len(numbers) || feed[numbers[i]].Type != client.EventTypeFeedReset {
			t.Errorf("event %d, %s of card %s, was delivered, but is not in the feed, which was not reset", seq, e.Type, e.CardUUID)
		}
	}
}

// awaitDeliveries waits until the webhook has received every event. After a
// while, it makes attempts due immediately that are scheduled for later.
func (c *chaos) awaitDeliveries(feed map[int64]*client.Event) {
	t, s := c.t, c.workload
	t.Helper()
	patience := 45 * time.Second // the claims of a killed process expire within 34 s
	if *chaosFor == 0 {
		patience = 3 * time.Second
	}
	start := time.Now()
	for ; ; time.Sleep(500 * time.Millisecond) {
		missing := 0
		s.mu.Lock()
		for _, e := range feed {
			if s.deliveries[e.ID] == 0 {
				missing++
			}
		}
		s.mu.Unlock()
		if missing == 0 {
			return
		}
		if time.Since(start) > patience {
			c.database().Exec(t, "UPDATE deliveries SET due_at = 1 WHERE due_at > 0")
			c.database().Exec(t, "UPDATE webhooks SET claimed_until = 0, paused_until = 0")
		}
		if time.Since(start) > patience+30*time.Second {
			t.Errorf("the webhook lacks %d of %d events", missing, len(feed))
			return
		}
	}
}
