package acceptance_test

import (
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/client"
	"github.com/cardmint/cardmint/internal/rig"
)

// printedAmount returns the --amount in the command that another command has
// printed.
func (h *host) printedAmount(printed string) string {
	h.Helper()
	found := regexp.MustCompile(`--amount (\S+) --yes`).FindStringSubmatch(printed)
	if found == nil {
		h.Fatalf("no amount is printed:\n%s", printed)
	}
	return found[1]
}

func (h *host) money() {
	h.start()
	late, back := h.order(150), h.order(50)
	h.pay(late, "0.9")
	h.pay(back, "0.9")
	// The card expires.
	h.exec("UPDATE cards SET expires_at = created_at WHERE uuid IN ($1, $2)", late.UUID.String(), back.UUID.String())
	h.awaitPayments(map[uuid.UUID]client.PaymentState{late.UUID: client.PaymentStateLate, back.UUID: client.PaymentStateLate})

	const cards, transfers = "Cards that wait", "Money to addresses of no card"
	wantOutput(h.T, h.run(cards), late.UUID.String(), back.UUID.String())
	wantOutput(h.T, h.run(cards, "ADDRESS", late.Payment.Address), late.UUID.String())
	wantOutput(h.T, h.run(cards, "UUID", late.UUID.String()), "accept", "refund")
	printed := h.run(cards, "UUID", late.UUID.String())
	wantOutput(h.T, printed, "Nothing was changed", "--yes")
	wantOutput(h.T, h.run(cards, "UUID", late.UUID.String(), "AMOUNT", h.printedAmount(printed)), "recorded")
	h.awaitPayments(map[uuid.UUID]client.PaymentState{late.UUID: client.PaymentStatePaid})
	printed, _ = h.shell("cm card resolve " + back.UUID.String() + " refund --note x")
	script := h.script(cards, "UUID", back.UUID.String(), "AMOUNT", h.printedAmount(printed))
	if out, _ := h.shell(script); !strings.Contains(out, "recorded") || !strings.Contains(out, "ask the customer") &&
		!strings.Contains(out, "no refund address") {
		h.Errorf("a card without a refund address:\n%s", out)
	}
	wantOutput(h.T,
		h.run(cards, "UUID", back.UUID.String(), "TXID", strings.Repeat("6a", 32), "AMOUNT", h.printedAmount(printed)), "recorded")

	db := rig.OpenSQL(h, h.databaseURL())
	forNew, forCard, returned := strings.Repeat("5c", 32), strings.Repeat("81", 32), strings.Repeat("d9", 32)
	waiting := h.order(150)
	for txid, coins := range map[string]int64{forNew: 1e12, forCard: 1e12, returned: 3e12} {
		sendStray(h.T, h.service(), db, txid, coins)
	}
	wantOutput(h.T, h.run(transfers), forNew, forCard, returned)
	printed = h.run(transfers, "TXID", forNew)
	wantOutput(h.T, printed, "would make a card of 150 USD")
	wantOutput(h.T, h.run(transfers, "TXID", forNew, "AMOUNT", h.printedAmount(printed)), "recorded")
	wantOutput(h.T, h.run(transfers, "TXID", forCard, "UUID", waiting.UUID.String(), "AMOUNT", "1"), "recorded")
	h.awaitPayments(map[uuid.UUID]client.PaymentState{waiting.UUID: client.PaymentStatePaid})
	wantOutput(h.T, h.run(transfers, "TXID", returned, "AMOUNT", "3"), "Now send exactly 3 monero")
	wantOutput(h.T, h.run(transfers), "no card waits", "no transfer waits", "everything agrees")
}
