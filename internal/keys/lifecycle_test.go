package keys_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/vault"
)

func TestPromote_ProcessLacksKey_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		other := s.secondProcess()
		ours, theirs := s.reporter("a/1", nil), other.reporter("b/2", nil)
		check(t, ours.Tick(t.Context()))
		check(t, theirs.Tick(t.Context()))
		added, err := vault.AddKey(s.path)
		check(t, err)
		check(t, ours.Tick(t.Context()))
		err = keys.Promote(t.Context(), s.db, added, false)
		wantError(t, err, keys.ErrNotEverywhere)
		if !strings.HasSuffix(err.Error(), ": b/2") {
			t.Errorf("%v", err)
		}
		if known, err := s.db.KnownKeys(t.Context()); err != nil || known[0].PromotedAt != nil || known[1].PromotedAt != nil {
			t.Errorf("promoted despite the error: %+v, %v", known, err)
		}
		check(t, theirs.Tick(t.Context()))
		check(t, keys.Promote(t.Context(), s.db, added, false))
		check(t, vault.PromoteKey(s.path, added))

		// The other process encrypts with the old key until it reads the file
		// again.
		old := other.vault.Keys().Primary
		check(t, ours.Tick(t.Context()))
		err = keys.Retire(t.Context(), s.db, old)
		wantError(t, err, keys.ErrStillPrimary)
		if !strings.HasSuffix(err.Error(), ": b/2") {
			t.Errorf("%v", err)
		}
		wantError(t, keys.Retire(t.Context(), s.db, added), keys.ErrStillPrimary)
		check(t, theirs.Close(t.Context())) // or until it stops
		wantError(t, keys.Retire(t.Context(), s.db, old), keys.ErrTooSoon)
		// one minute less than the settle time
		s.exec("UPDATE key_holders SET primary_since = primary_since - 300000")
		check(t, ours.Tick(t.Context()))
		err = keys.Retire(t.Context(), s.db, old)
		wantError(t, err, keys.ErrTooSoon)
		if want := fmt.Sprintf("for less than %d minutes",
			int(keys.SettleTime(s.db).Minutes())); !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		s.exec("UPDATE key_holders SET primary_since = primary_since - 60000")
		check(t, ours.Tick(t.Context()))
		check(t, keys.Retire(t.Context(), s.db, old))
	})
}

func TestPromote_ProcessDied_IgnoredOnceUnseen(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		check(t, s.reporter("dead/1", nil).Tick(t.Context()))
		added, err := vault.AddKey(s.path)
		check(t, err)
		wantError(t, keys.Promote(t.Context(), s.db, added, false), keys.ErrNotEverywhere)
		check(t, keys.Promote(t.Context(), s.db, added, true))
		s.exec("UPDATE key_holders SET seen_at = seen_at - 31000")
		check(t, keys.Promote(t.Context(), s.db, added, false))
		s.exec("UPDATE key_holders SET seen_at = seen_at - 86400000")
		check(t, s.reporter("new/1", nil).Tick(t.Context()))
		if all, err := s.db.Holders(t.Context(), 1000*time.Hour); err != nil || len(all) != 1 || all[0].Process != "new/1" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestReporter_Change_ReportedImmediately(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		now := time.Now()
		r := s.reporter("a/1", func() time.Time { return now })
		told := func() int64 {
			t.Helper()
			check(t, r.Tick(t.Context()))
			all, err := s.db.Holders(t.Context(), time.Hour)
			check(t, err)
			if len(all) == 0 {
				return 0
			}
			check(t, s.db.DeleteHolder(t.Context(), "a/1"))
			return 1
		}
		for i, step := range []struct {
			wait time.Duration
			want int64
		}{{0, 1}, {9 * time.Second, 0}, {time.Second, 1}, {0, 0}} {
			if now = now.Add(step.wait); told() != step.want {
				t.Errorf("step %d: want %d reports", i, step.want)
			}
		}
		_, err := vault.AddKey(s.path)
		check(t, err)
		if told() != 1 || !strings.Contains(s.log.String(), "key file changed") {
			t.Errorf("a new key was not reported or not logged:\n%s", s.log)
		}
		// A broken file is an error each time, and the other processes still
		// see this process's keys.
		check(t, os.WriteFile(s.path, []byte("broken"), 0o600))
		now = now.Add(10 * time.Second)
		if err := r.Tick(t.Context()); err == nil || len(s.vault.Keys().IDs) != 2 {
			t.Errorf("%v, %+v", err, s.vault.Keys())
		}
		if all, err := s.db.Holders(t.Context(), time.Hour); err != nil || len(all) != 1 || len(all[0].Keys.IDs) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// A key that no process ever had means that the ciphertext is corrupt. Any
// other unknown key is only missing here.
func TestReporter_UnknownKey_MissingOrCorrupt(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		ids := s.issue(2)
		behind := s.secondProcess()
		text, err := os.ReadFile(s.path)
		check(t, err)
		stale := s.path + ".stale"
		check(t, os.WriteFile(stale, text, 0o600))
		behind.vault, err = vault.Open(stale) // a host with an outdated copy of the file
		check(t, err)
		_, key := s.promote()
		check(t, s.rotator().Tick(t.Context()))
		flipped := card.KeyID(uint32(key) ^ 1)
		c, err := s.db.CardByUUID(t.Context(), s.account, ids[0])
		check(t, err)
		s.exec("UPDATE credentials SET url = $1 WHERE card_uuid = $2", append(flipped.Prefix(), c.Sealed.URL[5:]...), ids[0])

		read := func(s *fixture, i int) error {
			t.Helper()
			c, err := s.db.CardByUUID(t.Context(), s.account, ids[i])
			check(t, err)
			_, err = s.vault.OpenCredentials(ids[i], s.account, *c.Sealed)
			return err
		}
		wantError(t, read(s, 0), card.ErrUnavailable) // not known yet
		check(t, s.reporter("a/1", nil).Tick(t.Context()))
		if err := read(s, 0); err == nil || errors.Is(err, card.ErrUnavailable) {
			t.Errorf("corrupt ciphertext: %v", err)
		}
		check(t, read(s, 1))

		wantError(t, read(behind, 1), card.ErrUnavailable)
		reporter := behind.reporter("b/2", nil)
		for range 2 { // on every Tick
			wantError(t, reporter.Tick(t.Context()), card.ErrMissingKey)
		}
		wantError(t, read(behind, 1), card.ErrUnavailable)
		wantError(t, keys.CheckKeys(t.Context(), behind.db, behind.vault), card.ErrMissingKey)
		check(t, keys.CheckKeys(t.Context(), s.db, s.vault))
		text, err = os.ReadFile(s.path)
		check(t, err)
		check(t, os.WriteFile(stale, text, 0o600))
		check(t, reporter.Tick(t.Context()))
		check(t, read(behind, 1))
	})
}

func TestReport_EveryKeyAndProcess(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		s.issue(3)
		check(t, s.reporter("a/1", nil).Tick(t.Context()))
		all, holders, err := keys.Report(t.Context(), s.db, s.vault.Keys())
		check(t, err)
		if len(all) != 1 || !all[0].Primary || !all[0].Promoted || all[0].Rows != 3 || all[0].Holders != 1 ||
			len(holders) != 1 || holders[0].Process != "a/1" {
			t.Errorf("%+v, %+v", all, holders)
		}
		old, key := s.promote()
		s.issue(1)
		all, _, err = keys.Report(t.Context(), s.db, s.vault.Keys())
		check(t, err)
		at := func(id card.KeyID) keys.KeyReport {
			i := slices.IndexFunc(all, func(k keys.KeyReport) bool { return k.ID == id })
			if i < 0 {
				t.Fatalf("%s is not in %+v", id, all)
			}
			return all[i]
		}
		if k := at(old); k.Primary || k.Promoted || k.Rows != 3 || k.Holders != 1 || !k.Here || k.Created == nil {
			t.Errorf("old %+v", k)
		}
		if k := at(key); !k.Primary || !k.Promoted || k.Rows != 1 || k.Holders != 0 {
			t.Errorf("new %+v", k)
		}
		if k, made := at(key), s.vault.Keys().Created[key]; k.Created == nil || !k.Created.Equal(made) {
			t.Errorf("new %+v, made at %v", k, made)
		}
		all, _, err = keys.Report(t.Context(), s.db, keys.Ring{}) // on a host without a key file
		check(t, err)
		known, err := s.db.KnownKeys(t.Context())
		check(t, err)
		for _, k := range known {
			if got := at(k.ID); got.Here || got.Created == nil || !got.Created.Equal(k.Since) {
				t.Errorf("%+v, known since %v", got, k.Since)
			}
		}
	})
}

// No data is encrypted with it, and no process has reported it as primary.
func TestRetire_LastPromoted_ReturnsError(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		_, key := s.promote()
		wantError(t, keys.Retire(t.Context(), s.db, key), keys.ErrStillPrimary)
	})
}

// Rows of an uncommitted import are not counted as users of a key.
func TestRetire_DuringImport_ImportReadable(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		old := s.vault.Keys().Primary
		items := s.items(2)
		s.promote()
		retired := make(chan error, 1)
		imported := s.db.ImportStock(t.Context(), func(add func([]card.StockItem) error) error {
			if err := add(items[:1]); err != nil {
				return err
			}
			go func() { retired <- keys.Retire(t.Context(), s.db, old) }()
			if !s.db.SingleWriter() { // on SQLite, it waits for this transaction
				err := <-retired
				retired <- err
			}
			return nil
		})
		if err := <-retired; s.db.SingleWriter() {
			check(t, imported)
			wantError(t, err, keys.ErrStillUsed)
			known, err := s.db.KnownKeys(t.Context())
			check(t, err)
			for _, k := range known {
				if k.RetiredAt != nil {
					t.Errorf("key %s is still marked as retired", k.ID)
				}
			}
			check(t, s.rotator().Tick(t.Context()))
			check(t, keys.Retire(t.Context(), s.db, old))
		} else {
			check(t, err)
			wantError(t, imported, card.ErrRetiredKey)
			if n := s.users(old); n != 0 {
				t.Errorf("%d imported rows can't be decrypted", n)
			}
		}
		err := s.db.ImportStock(t.Context(), func(add func([]card.StockItem) error) error { return add(items[1:]) })
		wantError(t, err, card.ErrRetiredKey)
		check(t, s.db.PromoteKey(t.Context(), old)) // no longer retired
		check(t, s.db.ImportStock(t.Context(), func(add func([]card.StockItem) error) error { return add(items[1:]) }))
	})
}

// A host that was down during a rotation returns with a file that contains both
// keys, but encrypts with the retired one.
func TestRetire_HostReturns_DoesNotEncrypt(t *testing.T) {
	onEach(t, func(t *testing.T, s *fixture) {
		behind := s.secondProcess()
		ids := s.issue(1)
		added, err := vault.AddKey(s.path)
		check(t, err)
		text, err := os.ReadFile(s.path)
		check(t, err)
		stale := s.path + ".stale"
		check(t, os.WriteFile(stale, text, 0o600))
		old := s.vault.Keys().Primary
		check(t, keys.Promote(t.Context(), s.db, added, false))
		check(t, vault.PromoteKey(s.path, added))
		check(t, s.vault.Reread())
		check(t, s.rotator().Tick(t.Context()))
		check(t, keys.Retire(t.Context(), s.db, old))
		check(t, vault.RetireKey(s.path, old))

		open := func() {
			t.Helper()
			behind.vault, err = vault.Open(stale)
			check(t, err)
		}
		open()
		wantError(t, keys.CheckKeys(t.Context(), behind.db, behind.vault), card.ErrRetiredKey)
		open() // as in a process that started before the retirement
		sealed, err := behind.vault.Seal(ids[0], s.account, "f", "x")
		check(t, err)
		reporter := behind.reporter("b/2", nil)
		for range 2 { // on every Tick
			wantError(t, reporter.Tick(t.Context()), card.ErrRetiredKey)
		}
		_, err = behind.vault.Seal(ids[0], s.account, "f", "x")
		wantError(t, err, card.ErrUnavailable)
		_, err = behind.vault.SealCredentials(ids[0], s.account, plainOf(ids[0]))
		wantError(t, err, card.ErrUnavailable)
		_, err = behind.vault.Reseal(ids[0], s.account, []string{"f"}, [][]byte{sealed})
		wantError(t, err, card.ErrUnavailable)
		behind.wantReadable(ids)

		text, err = os.ReadFile(s.path)
		check(t, err)
		check(t, os.WriteFile(stale, text, 0o600))
		check(t, reporter.Tick(t.Context()))
		_, err = behind.vault.Seal(ids[0], s.account, "f", "x")
		check(t, err)

		check(t, s.vault.Reread())
		// The key of the rows that it has sealed is in no file: this must be
		// reported.
		check(t, s.rotator().Tick(t.Context()))
		s.exec("UPDATE cards SET refund_address = $1 WHERE uuid = $2", sealed, ids[0])
		wantError(t, s.rotator().Tick(t.Context()), card.ErrMissingKey)
	})
}
