package server_test

import (
	"fmt"
	"testing"

	"github.com/shopspring/decimal"
)

// impossible returns the contradictions in a response, or in a part of it.
func impossible(at string, value any) (faults []string) {
	switch value := value.(type) {
	case []any:
		for i, v := range value {
			faults = append(faults, impossible(fmt.Sprintf("%s/%d", at, i), v)...)
		}
	case map[string]any:
		for name, v := range value {
			faults = append(faults, impossible(at+"/"+name, v)...)
		}
		for _, rule := range rules {
			if rule.of(value) && !rule.holds(value) {
				faults = append(faults, at+": "+rule.name)
			}
		}
	}
	return faults
}

type object = map[string]any

func has(fields ...string) func(object) bool {
	return func(o object) bool {
		for _, f := range fields {
			if _, ok := o[f]; !ok {
				return false
			}
		}
		return true
	}
}

// rules are the contract's rules on fields that depend on each other.
var rules = []struct {
	name  string
	of    func(object) bool
	holds func(object) bool
}{
	{"credentials are null, all five, unless the card is generated and they are not purged", has("credentials", "status"),
		func(o object) bool {
			_, purged := o["credentials_purged_at"]
			return nulls(o["credentials"].(object)) == (o["status"] != "generated" || purged) &&
				(nulls(o["credentials"].(object)) || noNulls(o["credentials"].(object)))
		}},
	{"only what was generated is purged", has("credentials_purged_at"), func(o object) bool {
		return o["status"] == "generated"
	}},
	{"the state of the payment and the status belong together", has("payment", "status"), func(o object) bool {
		return together(o["status"], o["payment"].(object)["state"])
	}},
	{"the state of the payment and the status belong together", has("payment_state", "status"), func(o object) bool {
		return together(o["status"], o["payment_state"])
	}},
	{"the type says what became of the card", has("type", "payment_state"), func(o object) bool {
		return o["type"] != "card.generated" || o["status"] == "generated"
	}},
	{"an event about a card has its state, any other has none", has("type", "seq"), func(o object) bool {
		_, about := o["card_uuid"]
		_, status := o["status"]
		_, state := o["payment_state"]
		_, hook := o["webhook_id"]
		_, since := o["since"]
		return about == status && about == state && hook == (o["type"] == "webhook.disabled") &&
			since == (o["type"] == "feed.reset") && about == (!hook && !since)
	}},
	{"what has arrived, what is due and the state belong together", has("amount_received", "amount_due", "state"),
		paymentHolds},
	{"of what is paid for, as much is to be given back as arrived", has("refund_due", "state", "amount_received"),
		func(o object) bool {
			return o["state"] == "paid" && money(o["refund_due"]).IsPositive() &&
				money(o["refund_due"]).LessThanOrEqual(money(o["amount_received"]))
		}},
	{"what is issued is not to be given back", has("payment", "status"), func(o object) bool {
		return o["status"] != "generated" || !has("refund_due")(o["payment"].(object))
	}},
	{"a transfer has a height if it has confirmations", has("height", "confirmations"), func(o object) bool {
		return (o["height"] == nil) == (o["confirmations"] == 0.0)
	}},
	{"an enabled webhook has no reason and no time of its disabling, a disabled one has both",
		has("enabled", "disabled_reason", "disabled_at"), func(o object) bool {
			return (o["enabled"] == true) == (o["disabled_reason"] == nil) && (o["enabled"] == true) == (o["disabled_at"] == nil)
		}},
	{"an attempt has a status or an error", has("duration_ms", "status", "error"), func(o object) bool {
		return (o["status"] == nil) != (o["error"] == nil)
	}},
	{"what is pending has a next attempt, and nothing else has", has("next_attempt_at", "state"), func(o object) bool {
		return (o["state"] == "pending") == (o["next_attempt_at"] != nil)
	}},
	{"what is delivered has an attempt", has("attempts", "state"), func(o object) bool {
		return o["state"] != "delivered" || len(o["attempts"].([]any)) > 0
	}},
	{"a rate has its time", has("rate", "rate_at"), func(o object) bool {
		return (o["rate"] == nil) == (o["rate_at"] == nil)
	}},
	{"a range is ascending", has("min_usd", "max_usd"), func(o object) bool {
		return money(o["min_usd"]).LessThanOrEqual(money(o["max_usd"]))
	}},
}

func nulls(o object) bool {
	for _, v := range o {
		if v != nil {
			return false
		}
	}
	return true
}

func noNulls(o object) bool {
	for _, v := range o {
		if v == nil {
			return false
		}
	}
	return true
}

func money(v any) decimal.Decimal { return decimal.RequireFromString(v.(string)) }

func together(status, state any) bool {
	switch state {
	case "paid":
		return true
	case "reversed":
		return status == "generated"
	}
	return status == "awaiting_payment"
}

func paymentHolds(p object) bool {
	received, due, amount := money(p["amount_received"]), money(p["amount_due"]), money(p["amount"])
	none := due.IsZero()
	switch p["state"] {
	case "unpaid":
		return received.IsZero() && due.Equal(amount) && p["uri"] != "" || none && p["uri"] == "" // refunded
	case "underpaid":
		return received.IsPositive() && received.Add(due).Equal(amount)
	case "detected", "confirming":
		return received.GreaterThanOrEqual(amount) && none
	case "paid":
		return received.IsPositive() && none
	case "late":
		return received.IsPositive()
	case "canceled":
		return none && p["uri"] == ""
	}
	return true // expired or reversed: a refund or a reorganization may have left anything
}

// The checker must find contradictions in modified examples.
func TestImpossible_FindsContradictions(t *testing.T) {
	t.Parallel()
	credentials := func(number any) object { return object{"card_number": number, "url": number} }
	for name, value := range map[string]object{
		"a number before the payment": {"status": "awaiting_payment", "credentials": credentials("9912")},
		"no number afterwards":        {"status": "generated", "credentials": credentials(nil)},
		"half of the credentials":     {"status": "generated", "credentials": object{"card_number": "9912", "url": nil}},
		"generated but unpaid":        {"status": "generated", "payment": object{"state": "unpaid"}},
		"enabled for a reason":        {"enabled": true, "disabled_reason": "failing", "disabled_at": nil},
		"disabled for none":           {"enabled": false, "disabled_reason": nil, "disabled_at": nil},
		"paid without money":          {"state": "paid", "amount": "1", "amount_received": "0", "amount_due": "0"},
		"unpaid with money": {"state": "unpaid", "amount": "1", "amount_received": "1", "amount_due": "0",
			"uri": "x"},
		"late money to be given back": {"state": "late", "amount": "1", "amount_received": "1", "amount_due": "0",
			"refund_due": "1"},
		"more back than arrived": {"state": "paid", "amount": "1", "amount_received": "1", "amount_due": "0",
			"refund_due": "2"},
		"issued and to be given back": {"status": "generated", "payment": object{"state": "paid", "refund_due": "1"}},
		"an event about nothing":      {"type": "card.generated", "seq": 1.0},
		"a status and an error":       {"duration_ms": 1.0, "status": 200.0, "error": "no connection"},
		"delivered and due":           {"state": "delivered", "next_attempt_at": "2026-11-20T15:11:00.120Z"},
		"a block without height":      {"height": nil, "confirmations": 4.0},
		"a rate of no time":           {"rate": "152.52", "rate_at": nil},
	} {
		if len(impossible("", value)) == 0 {
			t.Errorf("%s was not found", name)
		}
	}
}
