package card

// Credit divides the money that a card received into Paid, Held, Surplus and
// Refunded. Lost is counted separately. Credit is computed and stored with each
// assessment; readers use the stored amounts and never compute their own.
type Credit struct {
	Paid       Amount // credited toward the price
	Held       Amount // late or too little; an operator decides
	Surplus    Amount // above the price of a paid card
	Refunded   Amount // the part that is still in the chain
	Lost       Amount // missing from the chain, although the card was issued or the money refunded
	WrittenOff Amount // the part of Lost that the operator bears
	Due        Amount // still to be paid; 0 once the card is issued, canceled or refunded
}

// CreditOf computes a card's credit from its state, receipts, settled price and
// the operators' decisions.
func CreditOf(c *Card) Credit {
	kept := c.Received - c.Refunded
	// A refunded payment may have left the chain since.
	k := Credit{Refunded: min(c.Received, c.Refunded), Lost: max(0, -kept)}
	kept = max(0, kept)
	price := c.Amount
	switch {
	case c.Settled > 0:
		price = c.Settled
		k.Surplus = max(0, kept-price)
	case c.Accepted > 0:
		price = min(price, c.Accepted)
	}
	k.Due = due(c, price-kept)
	switch {
	case c.Status != Generated && c.State == Late:
		k.Held = kept - k.Surplus
	default:
		k.Paid = kept - k.Surplus
	}
	if c.Status == Generated {
		k.Lost += max(0, c.Settled-kept)
	}
	k.WrittenOff = min(c.WrittenOff, k.Lost)
	return k
}

// RefundDue returns the amount to refund, surplus included, of a paid card that
// no supplier issues; 0 for any other card. Late money is not due: an operator
// decides about it.
func (c *Card) RefundDue() Amount {
	if !c.Refused || c.Status == Generated || c.State != Paid {
		return 0
	}
	return max(0, c.Received-c.Refunded)
}

// due returns the amount still to be paid for a card that lacks an amount.
// Nothing is due for a card that is issued, canceled or refunded: the customer
// should not pay more. A customer who pays nevertheless gets the card.
func due(c *Card, lacks Amount) Amount {
	if c.Status == Generated || c.Refunded > 0 || c.canceled() {
		return 0
	}
	return max(0, lacks)
}
