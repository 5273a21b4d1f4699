package keys_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/account"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/vault"
)

func TestRotator_OlderKey_EverythingReplaced(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids, w := s.issue(7), s.hook()
		check(t, s.rotator().Tick(t.Context())) // no key was promoted
		old, key := s.promote()
		later := s.issue(2)
		if n := s.users(old); n != 9 {
			t.Errorf("%d rows before", n)
		}
		check(t, s.rotator().Tick(t.Context()))
		if n, all := s.users(old), s.users(key); n != 0 || all != 11 {
			t.Errorf("%d rows of the old key, %d of the new one", n, all)
		}
		s.wantReadable(append(ids, later...))
		stored, err := s.db.WebhookByID(t.Context(), s.account, w.ID)
		check(t, err)
		for want, text := range map[string][]byte{"new": stored.Sealed, "old": stored.SealedOld} {
			if got, err := s.vault.Open(w.ID, s.account, "webhook_secret", text); err != nil || got.Reveal() != want {
				t.Errorf("%s secret: %v", want, err)
			}
		}
		if text := s.log.String(); !strings.Contains(text, "credentials") || !strings.Contains(text, "rows=7") ||
			strings.Contains(text, "number ") {
			t.Errorf("logged:\n%s", text)
		}
		s.log.Reset()
		check(t, s.rotator().Tick(t.Context()))
		if text := s.log.String(); text != "" {
			t.Errorf("nothing was due, but logged:\n%s", text)
		}
		check(t, keys.Retire(t.Context(), s.db, old))
		check(t, vault.RetireKey(s.path, old))
		check(t, s.vault.Reread())
		s.wantReadable(append(ids, later...))
	})
}

// A token outlives the key that sealed its row. An old copy of the row can't
// undo a revocation once the key is retired.
func TestRotator_Token_SealedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ctx := t.Context()
		var now time.Duration
		accounts, err := account.New(s.db, s.vault, account.Config{Now: func() time.Time { return time.Now().Add(now) }})
		check(t, err)
		good, text, err := accounts.CreateToken(ctx, "shop", account.TokenRequest{Scopes: account.AllScopes})
		check(t, err)
		revoked, textOfRevoked, err := accounts.CreateToken(ctx, "shop", account.TokenRequest{Scopes: account.AllScopes})
		check(t, err)
		check(t, accounts.RevokeToken(ctx, revoked.ID))
		old, _ := s.promote()
		check(t, s.rotator().Tick(ctx))
		if n := s.users(old); n != 0 {
			t.Errorf("%d rows of the old key", n)
		}
		check(t, keys.Retire(ctx, s.db, old))
		check(t, vault.RetireKey(s.path, old))
		check(t, s.vault.Reread())
		who, err := accounts.Authenticate(ctx, text.Reveal())
		if err != nil || who.TokenID != good.ID {
			t.Errorf("%+v, error %v", who, err)
		}

		s.exec("UPDATE tokens SET revoked_at = NULL, seal = $1 WHERE id = $2", revoked.Seal, revoked.ID)
		s.vault.MarkNonexistent([]card.KeyID{old})
		now = time.Minute
		_, err = accounts.Authenticate(ctx, textOfRevoked.Reveal())
		wantError(t, err, card.ErrUnauthorized)
	})
}

// A worker dies between two pages, or after a page whose commit returned an
// error. Every process can still decrypt all rows, and the next worker
// finishes.
func TestRotator_Killed_NextFinishes(t *testing.T) {
	for name, late := range map[string]bool{"before the page": false, "after the page": true} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *fixture) {
				ids, other := s.issue(8), s.secondProcess()
				old, key := s.promote()
				dying := keys.NewRotator(&faultyStore{Store: s.db, pages: 1, late: late}, s.vault, s.logger()).InPagesOf(3)
				wantError(t, dying.Tick(t.Context()), card.ErrUnavailable)
				if n := s.users(key); n != map[bool]int64{false: 3, true: 6}[late] {
					t.Errorf("%d rows were replaced", n)
				}
				wantError(t, keys.Retire(t.Context(), s.db, old), keys.ErrStillUsed)
				s.wantReadable(ids)
				other.wantReadable(ids) // with the key file as it was at the start
				check(t, other.vault.Reread())
				check(t, other.rotator().Tick(t.Context()))
				if n := s.users(old); n != 0 {
					t.Errorf("%d rows are left", n)
				}
				other.wantReadable(ids)
			})
		})
	}
}

func TestRotator_RowChanged_NotReplaced(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		w := s.hook()
		old, key := s.promote()
		var now []byte
		meet := func() { // the account rotates the webhook's secret
			sealed, err := s.vault.Seal(w.ID, s.account, "webhook_secret", "newest")
			check(t, err)
			if now == nil {
				now = sealed
				s.exec("UPDATE webhooks SET secret = $1", sealed)
			}
		}
		check(t, keys.NewRotator(&faultyStore{Store: s.db, pages: 9, meet: meet}, s.vault, s.logger()).Tick(t.Context()))
		stored, err := s.db.WebhookByID(t.Context(), s.account, w.ID)
		check(t, err)
		if got, err := s.vault.Open(w.ID, s.account, "webhook_secret", stored.Sealed); err != nil ||
			got.Reveal() != "newest" {
			t.Errorf("the secret is %q, %v", got.Reveal(), err)
		}
		if n, all := s.users(old), s.users(key); n != 0 || all != 2 {
			t.Errorf("%d rows of the old key, %d of the new one", n, all)
		}

		rows, err := s.db.SealedBy(t.Context(), "webhook secret", key, uuid.Nil, 9)
		check(t, err)
		stale := []keys.Row{{ID: rows[0].ID, AccountID: rows[0].AccountID, Sealed: [][]byte{[]byte("what it was")}}}
		if n, err := s.db.ReplaceSealed(t.Context(), "webhook secret", stale, rows); err != nil || n != 0 {
			t.Errorf("replaced %d, %v", n, err)
		}
	})
}

func TestRotator_CorruptRow_OthersReplaced(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids := s.issue(7)
		s.exec("UPDATE credentials SET url = $1 WHERE card_uuid = $2",
			append(s.vault.Keys().Primary.Prefix(), make([]byte, 40)...), ids[1])
		old, _ := s.promote()
		check(t, s.rotator().Tick(t.Context()))
		check(t, s.rotator().Tick(t.Context()))
		if n := s.users(old); n != 1 {
			t.Errorf("%d rows are left", n)
		}
		s.wantReadable(append(ids[:1:1], ids[2:]...))
		err := keys.Retire(t.Context(), s.db, old)
		wantError(t, err, keys.ErrStillUsed)
		purged, err := s.db.PurgeCard(t.Context(),
			keys.Purge{ID: uuid.Must(uuid.NewV7()), CardUUID: ids[1], Note: "damaged", Operator: "o"})
		if check(t, err); !purged {
			t.Error("not purged")
		}
		check(t, keys.Retire(t.Context(), s.db, old))
	})
}

// The index finds rows by their first field only. Before a key is retired, rows
// with the key in another field count too.
func TestRetire_ReadsEveryField(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids := s.issue(2)
		old, _ := s.promote()
		sealed, err := s.vault.SealCredentials(ids[0], s.account, plainOf(ids[0]))
		check(t, err)
		s.exec("UPDATE credentials SET card_number = $1 WHERE card_uuid = $2", sealed.CardNumber, ids[0])
		check(t, s.rotator().Tick(t.Context()))
		if n, err := keys.Users(t.Context(), s.db, old); err != nil || n != 1 {
			t.Errorf("%d users, %v", n, err)
		}
		wantError(t, keys.Retire(t.Context(), s.db, old), keys.ErrStillUsed)
	})
}

// Two hosts with different key files would undo each other's work forever.
func TestRotator_AnotherPrimaryKey_DoesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.issue(2)
		other := s.secondProcess()
		text, err := os.ReadFile(s.path)
		check(t, err)
		check(t, os.WriteFile(s.path+".copy", text, 0o600)) // another host's copy, which stays outdated
		other.vault, err = vault.Open(s.path + ".copy")
		check(t, err)
		old, key := s.promote()
		wantError(t, other.rotator().Tick(t.Context()), keys.ErrOtherPrimary)
		check(t, s.rotator().Tick(t.Context()))
		wantError(t, other.rotator().Tick(t.Context()), keys.ErrOtherPrimary)
		if n, all := s.users(old), s.users(key); n != 0 || all != 2 {
			t.Errorf("%d rows of the old key, %d of the new one", n, all)
		}
		text, err = os.ReadFile(s.path)
		check(t, err)
		check(t, os.WriteFile(s.path+".copy", text, 0o600))
		check(t, other.rotator().Tick(t.Context())) // reads the file again
	})
}

// Keys rotate several times while another process issues cards, and both
// processes read them.
func TestRotator_ConcurrentIssueAndReads(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		other := s.secondProcess()
		ids := s.issue(5)
		var mu sync.Mutex
		var issuing sync.WaitGroup
		issuing.Go(func() {
			for range 25 {
				id, err := other.issueOne()
				if err != nil {
					t.Error(err)
					return
				}
				if err := other.vault.Reread(); err != nil {
					t.Error(err)
				}
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
		})
		issued := func() []uuid.UUID {
			mu.Lock()
			defer mu.Unlock()
			return append([]uuid.UUID(nil), ids...)
		}
		for range 4 {
			old, _ := s.promote()
			for {
				check(t, s.rotator().Tick(t.Context()))
				s.wantReadable(issued())
				// The other process reports nothing, so it may still encrypt
				// with the old key.
				left, err := keys.Users(t.Context(), s.db, old)
				check(t, err)
				if other.vault.Keys().Primary != old && left == 0 {
					break
				}
				_ = other.vault.Reread()
			}
			err := keys.Retire(t.Context(), s.db, old)
			if errors.Is(err, keys.ErrStillUsed) { // sealed before the check, stored after it
				continue
			}
			check(t, err)
		}
		issuing.Wait()
		check(t, other.vault.Reread())
		check(t, s.rotator().Tick(t.Context()))
		s.wantReadable(ids)
		other.wantReadable(ids)
		if n := s.users(s.vault.Keys().Primary); n != 30 {
			t.Errorf("%d rows have the newest key", n)
		}
	})
}

// Associated data reveals ciphertexts that were moved. It can't reveal which of
// two values of a field is newer.
func TestSealed_MovedOrRolledBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids := s.issue(2)
		read := func(i int) error {
			c, err := s.db.CardByUUID(t.Context(), s.account, ids[i])
			check(t, err)
			_, err = s.vault.OpenCredentials(ids[i], s.account, *c.Sealed)
			return err
		}
		s.exec("UPDATE credentials SET card_number = (SELECT c.card_number FROM credentials c WHERE c.card_uuid = $1) WHERE card_uuid = $2", ids[1], ids[0])
		if err := read(0); err == nil || errors.Is(err, card.ErrUnavailable) {
			t.Errorf("another card's number: %v", err)
		}
		s.exec("UPDATE credentials SET security_code = url_password WHERE card_uuid = $1", ids[1])
		if err := read(1); err == nil || errors.Is(err, card.ErrUnavailable) {
			t.Errorf("another field: %v", err)
		}

		w := s.hook()
		s.exec("UPDATE webhooks SET secret = old_secret")
		stored, err := s.db.WebhookByID(t.Context(), s.account, w.ID)
		check(t, err)
		if got, err := s.vault.Open(w.ID, s.account, "webhook_secret", stored.Sealed); err != nil || got.Reveal() != "old" {
			t.Errorf("an older secret under a key in use must be readable: %v", err)
		}
	})
}

// Stock items are re-encrypted until they are wiped, and refund addresses as
// long as their card exists.
func TestRotator_ReplacesStockAndRefundAddresses(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids, stock := s.issue(4), s.stock(5)
		s.refundAddress(ids[1])
		s.refundAddress(ids[2])
		s.exec("UPDATE stock SET card_number = NULL, expiration_date = NULL, security_code = NULL, url = NULL, url_password = NULL, state = 'issued', card_uuid = $2 WHERE id = $1", stock[0], ids[0])
		old, key := s.promote()
		if n := s.users(old); n != 10 {
			t.Errorf("%d rows before", n)
		}
		check(t, s.rotator().Tick(t.Context()))
		if n, all := s.users(old), s.users(key); n != 0 || all != 10 {
			t.Errorf("%d rows of the old key, %d of the new one", n, all)
		}
		check(t, keys.Retire(t.Context(), s.db, old))
		check(t, vault.RetireKey(s.path, old))
		check(t, s.vault.Reread())
		s.wantReadable(ids)
		for _, id := range ids[1:3] {
			c, err := s.db.CardByUUID(t.Context(), s.account, id)
			check(t, err)
			if got, err := s.vault.Open(id, s.account, card.RefundAddressField, c.SealedRefundAddress); err != nil ||
				got.Reveal() != "address "+id.String() {
				t.Errorf("refund address of %s: %v", id, err)
			}
		}
		for range stock[1:] {
			item, err := s.db.TakeStock(t.Context(), "shelf", uuid.New(), 150_00, time.Now())
			check(t, err)
			if got, err := s.vault.OpenCredentials(item.ID, uuid.Nil, *item.Sealed); err != nil || got != plainOf(item.ID) {
				t.Errorf("item %s: %v", item.ID, err)
			}
		}
	})
}
