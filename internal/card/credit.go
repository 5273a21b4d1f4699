package card

// Credit says what became of the money that a card received. Paid, Held,
// Surplus and Refunded make up what was received; Lost is beside it. It is
// computed with each assessment and stored with it, and whoever asks for one of
// these amounts reads what was stored.
type Credit struct {
	Paid       Amount // credited toward the price
	Held       Amount // late or too little: an operator decides what becomes of it
	Surplus    Amount // beyond the price, once the payment was found paid
	Refunded   Amount // given back, of what is still there
	Lost       Amount // the card was issued or money was given back for it, and it is no longer in the chain
	WrittenOff Amount // of Lost, what the operator bears
	Due        Amount // still to be paid: nothing once the card is issued or canceled, or money was given back
}

// CreditOf computes the credit of a card from its state, what it received, what
// it was settled for and what operators decided.
func CreditOf(c *Card) Credit {
	kept := c.Received - c.Refunded
	// what was given back may have left the chain since
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

// RefundDue returns how much of the money of a card is to be given back, the
// surplus included, because the card is paid for but no supplier makes it; 0
// for any other card. Of money that is late it is not decided yet.
func (c *Card) RefundDue() Amount {
	if !c.Refused || c.Status == Generated || c.State != Paid {
		return 0
	}
	return max(0, c.Received-c.Refunded)
}

// due returns what is still to be paid for a card that lacks so much. Nothing
// is due for a card that is issued, nor once the client canceled it or an
// operator gave money back: the customer is to pay no more. Who pays all the
// same gets the card.
func due(c *Card, lacks Amount) Amount {
	if c.Status == Generated || c.Refunded > 0 || c.canceled() {
		return 0
	}
	return max(0, lacks)
}
