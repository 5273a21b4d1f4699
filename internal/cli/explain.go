package cli

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/operator"
)

// explained explains a card at the last accepted rate of its coin. Fixed rates
// are not stored; then it uses the rate of the card's quote.
func (admin adminContext) explained(ctx context.Context, r operator.CardDetail) (operator.Explanation, error) {
	rate := r.Card.Rate
	rate.Source = "its quote"
	accepted, err := admin.db.AcceptedRates(ctx, []string{r.Card.Coin.Code}, 0)
	if len(accepted) > 0 {
		last := accepted[len(accepted)-1]
		rate = card.Rate{USD: last.USD, At: last.At, Source: last.Source}
	}
	return operator.Explain(r, rate), err
}

// coins formats an amount with the name of its coin.
func coins(c *card.Card, a card.Amount) string { return c.Coin.Decimal(a).String() + " " + c.Coin.Code }

// waitReasons returns what a card waits for and why, one line each.
func waitReasons(r operator.CardDetail, x operator.Explanation, now time.Time) []string {
	c := r.Card
	switch x.Wait {
	case operator.ForMoney:
		return []string{fmt.Sprintf("the customer to pay %s more until %s", coins(c, x.Missing), formatTime(&x.Until))}
	case operator.ForConfirmations, operator.ForUnlock:
		return waitsForTransfers(c, x.Transfers)
	case operator.ForRate:
		return []string{
			fmt.Sprintf("a rate of %s: late money is judged by today's; see it with: cardmint rate show", c.Coin.Code)}
	case operator.ForSupplier:
		return []string{"the supplier, who " + attempts(r.Intent, now)}
	case operator.ForDecision:
		return []string{"an operator to decide: " + decisionReason(r, x)}
	}
	switch {
	case c.Status == card.Generated && c.Credit.WrittenOff > 0:
		return []string{"nothing: the card is issued, and its loss is written off"}
	case c.Status == card.Generated:
		return []string{"nothing: the card is issued"}
	case c.Refunded > 0:
		return []string{"nothing: its money was given back"}
	case c.State == card.Canceled:
		return []string{"nothing: its client canceled it before anything was paid"}
	}
	return []string{"nothing: nothing was paid in time"}
}

// maxAwaited limits the transfers named in waitReasons.
const maxAwaited = 3

func waitsForTransfers(c *card.Card, transfers []card.Transfer) (lines []string) {
	slowest := int64(0)
	for i, t := range transfers {
		missing := int64(c.ConfirmationsRequired) - t.Confirmations(c.TipHeight)
		if !t.Locked {
			slowest = max(slowest, missing)
		}
		switch what := fmt.Sprintf("%s in transaction %s", coins(c, t.Amount), t.TxID); {
		case i >= maxAwaited:
		case t.Locked:
			lines = append(lines, "the sender to unlock "+what+": only the sender knows when that is")
		case t.Height == 0:
			lines = append(lines, fmt.Sprintf("%d confirmations of %s, which is in no block yet", missing, what))
		default:
			lines = append(lines, fmt.Sprintf("%d of %d confirmations of %s", missing, c.ConfirmationsRequired, what))
		}
	}
	if more := len(transfers) - maxAwaited; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more transfers", more))
	}
	if slowest > 0 {
		lines = append(lines,
			fmt.Sprintf("which takes about %s", (time.Duration(slowest)*c.Coin.BlockTime).Round(time.Minute)))
	}
	return lines
}

// attempts describes how often a supplier was asked for a card, and the time of
// the next request.
func attempts(i *operator.IntentRecord, now time.Time) string {
	if i == nil || i.Attempts == 0 {
		return "is asked within seconds, if a worker runs"
	}
	often, again := "once", "within seconds, if a worker runs"
	if i.Attempts > 1 {
		often = fmt.Sprintf("%d times", i.Attempts)
	}
	if i.DueAt.After(now) {
		again = "at " + formatTime(&i.DueAt)
	}
	return fmt.Sprintf("was asked %s (%s), and is asked again %s", often, orDash(oneLine(i.Reason)), again)
}

// attentionReason returns in a few words why a card waits for an operator.
func attentionReason(r operator.CardDetail, x operator.Explanation) string {
	c := r.Card
	switch {
	case x.Wait == operator.ForUnlock:
		return "locked by its sender"
	case x.Lost > 0:
		return coins(c, x.Lost) + " left the chain"
	case c.State == card.Late && !c.CanceledAt.IsZero():
		return "paid after it was canceled"
	case c.State == card.Late:
		return "late or too little"
	case r.Intent == nil:
		return string(x.Wait)
	case r.Intent.State == "refund_due":
		return "refund due: " + orDash(oneLine(r.Intent.Reason))
	}
	return "parked: " + orDash(oneLine(r.Intent.Reason))
}

// decisionReason explains why an operator must decide.
func decisionReason(r operator.CardDetail, x operator.Explanation) string {
	switch {
	case x.Lost > 0 && r.Card.Status == card.Generated:
		return coins(r.Card, x.Lost) + " left the chain after the card was issued, and may come back"
	case x.Lost > 0:
		return coins(r.Card, x.Lost) + " left the chain after the money was given back, and may come back"
	case r.Card.State == card.Late && !r.Card.CanceledAt.IsZero():
		return "the money came after the card's client had canceled it, and does not buy it at today's rate, or is too little"
	case r.Card.State == card.Late:
		return "the money came too late, or was too little when the quote ended"
	case r.Intent.State == "refund_due":
		since := ""
		if !x.Since.IsZero() {
			since = " since " + formatTime(&x.Since)
		}
		return "its refund is due" + since + ": no supplier makes the card: " + orDash(oneLine(r.Intent.Reason))
	}
	return "the card could not be issued: " + orDash(oneLine(r.Intent.Reason))
}

// formatWorth returns the value of a card's money, and the missing amount.
func formatWorth(c *card.Card, w *operator.Worth) string {
	text := fmt.Sprintf("%s USD, at %s USD each by %s of %s", w.USD, w.Rate.USD, w.Rate.Source, formatTime(&w.Rate.At))
	if w.Short == 0 {
		return text
	}
	return fmt.Sprintf("%s; %s USD are missing, now %s", text, w.Short, coins(c, w.Missing))
}

// printDecisions prints the possible decisions, each with its command.
func printDecisions(out io.Writer, c *card.Card, x operator.Explanation) {
	if x.Wait == operator.ForConfirmations || x.Wait == operator.ForSupplier {
		return // continues automatically
	}
	for _, choice := range x.Choices {
		what := ""
		switch choice.Kind {
		case operator.Accept:
			what = "issue the card for " + coins(c, choice.Amount) + acceptCost(choice, x.Worth)
		case operator.Refund:
			what = "give back " + coins(c, choice.Amount)
		case operator.WriteOff:
			what = "bear the loss of " + coins(c, choice.Amount) + " and wait for it no more"
		case operator.Retry:
			what = retryEffect(c, choice, x)
		}
		fmt.Fprintf(out, "\nTo %s%s:\n  %s\n", what, describeLeftOut(c, choice.Kind, choice.LeftOut),
			command("card", "resolve", c.UUID.String(), verb(choice.Kind), "--note", "..."))
	}
	if x.Wait == operator.ForUnlock {
		fmt.Fprintf(out,
			"\nTo wait for the end of the lock, do nothing. That of a lock of more than a week is noticed only by:\n  %s\n",
			command("wallet", "rescan", c.Coin.Code))
	}
}

// retryEffect describes the effect of retrying a card.
func retryEffect(c *card.Card, choice operator.Choice, x operator.Explanation) string {
	text := "ask the suppliers again for a card of " + c.USD.String() + " USD"
	if x.Worth != nil {
		text += fmt.Sprintf(", which was paid with what is worth %s USD today", x.Worth.USD)
	}
	if choice.Cost > 0 {
		text += fmt.Sprintf(" and so costs you %s USD", choice.Cost)
	}
	return text
}

// acceptCost describes the cost of accepting less than the price.
func acceptCost(choice operator.Choice, w *operator.Worth) string {
	switch {
	case choice.Cost > 0:
		return fmt.Sprintf(", which costs you %s USD", choice.Cost)
	case w != nil:
		return ", which costs you nothing"
	}
	return ""
}

// describeLeftOut describes the money that a decision leaves out.
func describeLeftOut(c *card.Card, kind operator.ResolutionKind, left operator.LeftOut) string {
	var parts []string
	if left.Locked > 0 {
		parts = append(parts, coins(c, left.Locked)+", which the sender has locked")
	}
	if left.Unconfirmed > 0 {
		parts = append(parts, coins(c, left.Unconfirmed)+", which is not confirmed yet")
	}
	if len(parts) == 0 {
		return ""
	}
	text := " (without " + strings.Join(parts, ", and ")
	if kind == operator.Refund {
		text += ": it may never be yours"
	}
	return text + ")"
}

// verb returns the argument of a decision on the command line.
func verb(kind operator.ResolutionKind) string { return strings.ReplaceAll(string(kind), "_", "-") }

var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,/-][A-Za-z0-9_@%+=:,./-]*$`)

// command returns a command line, quoted for a shell.
func command(args ...string) string {
	quoted := slices.Clone(args)
	for i, a := range args {
		if !plain.MatchString(a) {
			quoted[i] = "'" + strings.ReplaceAll(oneLine(a), "'", `'\''`) + "'"
		}
	}
	return "cardmint " + strings.Join(quoted, " ")
}
