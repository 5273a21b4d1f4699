package acceptance_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

// A payment for a deleted card is listed with the remaining data about the
// card.
func TestTransfers_DeletedCard_IsNamed(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	p := newProgram(t, url)
	p.account(t)
	const id = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"
	db := rig.OpenSQL(t, url)
	for _, statement := range []string{
		`INSERT INTO transfers (currency, txid, output, address, amount, height, locked, counted, first_seen_at) VALUES
			('monero', 'x', 3, 'a', 1000000000000, 5, 0, 1, 0), ('monero', 'y', 0, 'b', 2000000000000, 6, 1, 1, 0)`,
		`INSERT INTO retired_addresses (currency, address, card_uuid, account_id, usd_cents, amount, expires_at, retired_at)
			SELECT 'monero', 'b', '` + id + `', id, 15000, 983000000000, 1763654400000, 1795190400000 FROM accounts`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	const printed = "locked for card " + id + " of shop, 150 USD, which expired 2025-11-20T16:00:00Z and was deleted"
	wantOutput(t, p.must(t, "transfers", "--unattributed"), "x            3       a", "b        "+printed)
	wantOutput(t, p.must(t, "transfers"), printed)
	var all []struct {
		TxID    string
		Deleted *struct {
			UUID, Account string
			USDAmount     string `json:"usd_amount"`
			Amount        string
			ExpiredAt     string `json:"expired_at"`
		} `json:"deleted_card"`
	}
	if err := json.Unmarshal([]byte(p.must(t, "transfers", "--unattributed", "--json")), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Deleted != nil || all[1].Deleted == nil || all[1].Deleted.UUID != id ||
		all[1].Deleted.Account != "shop" ||
		all[1].Deleted.USDAmount != "150" || all[1].Deleted.Amount != "0.983" ||
		all[1].Deleted.ExpiredAt != "2025-11-20T16:00:00.000Z" {
		t.Errorf("%+v", all)
	}
}
