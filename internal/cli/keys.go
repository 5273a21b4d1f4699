package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
	"github.com/cardmint/cardmint/internal/keys"
	"github.com/cardmint/cardmint/internal/vault"
)

type keysCreateCommand struct{}

func (keysCreateCommand) Help() string {
	return "Keep a copy of the file in a safe place, apart from the backups of the database: without it no credentials can be read.\n\nExample:\n  cardmint keys create --keys /etc/cardmint/cardmint.keys"
}

// Run creates a key file.
func (keysCreateCommand) Run(g *globals) error {
	if err := vault.Create(g.Keys); err != nil {
		return app.WithHint(err, "choose another file with --keys; an existing one is never overwritten")
	}
	fmt.Fprintf(g.stdout, "made %s; keep a copy in a safe place, apart from the database\n", g.Keys)
	return nil
}

type keysAddCommand struct {
	output `embed:""`
}

type addedKeyJSON struct {
	Key  string `json:"key"`
	File string `json:"file"`
}

func (keysAddCommand) Help() string {
	return `The first step of a rotation. The key file gets another encryption key, which nothing is encrypted with yet. Processes that run with this file
have the key within seconds; copy the file to the other hosts. The key that hashes tokens and card numbers stays: what it hashed is not stored.

A rotation:
  # prints the id of the new key; copy the file to every host
  cardmint keys add
  # until every process has it
  cardmint keys list
  # from now on it encrypts; copy the file again
  cardmint keys promote ID
  # until the old key has no rows
  cardmint keys list
  # removes the old key; copy the file once more, and keep a copy apart
  # from the database
  cardmint keys retire OLD-ID

Example:
  cardmint keys add --keys /etc/cardmint/cardmint.keys` + jsonHelp(addedKeyJSON{})
}

// Run adds a key.
func (c keysAddCommand) Run(ctx context.Context, g *globals) error {
	id, err := vault.AddKey(g.Keys)
	if err != nil {
		return g.explainKeyFile(err)
	}
	g.audited(ctx, "key_added", "", about("key", id))
	return c.write(g, addedKeyJSON{id.String(), g.Keys}, func(w io.Writer) {
		fmt.Fprintf(w, "added key %s to %s; nothing is encrypted with it yet\n", id, g.Keys)
		fmt.Fprintf(w, "copy the file to every host, then run: %s\n", command("keys", "promote", id.String()))
	})
}

type keysPromoteCommand struct {
	ID    string `arg:"" help:"The key's id, from 'keys list'."`
	Force bool   `help:"Promote it although a process lacks it. What that process can't decrypt it answers with 503 until its key file has the key."`
}

func (keysPromoteCommand) Help() string {
	return "From now on everything new is encrypted with the key, and workers re-encrypt the rest. It is refused unless every process that runs has the key. Processes of versions without rotation are not seen: replace them first.\n\nExample:\n  cardmint keys promote 3f2a91bc"
}

// Run promotes a key.
func (c keysPromoteCommand) Run(ctx context.Context, g *globals) error {
	id, err := keyID(c.ID)
	if err != nil {
		return err
	}
	// The only remaining file may have a retired primary key.
	return g.withAdminTolerating(ctx, card.ErrRetiredKey, func(admin adminContext) error {
		if !admin.vault.Keys().Has(id) {
			return g.explainKeyFile(vault.ErrNoKey)
		}
		err := keys.Promote(ctx, admin.db, id, c.Force)
		if errors.Is(err, keys.ErrNotEverywhere) {
			return app.WithHint(err,
				"copy the key file to their hosts; they read it within seconds, as 'cardmint keys list' shows. --force does it nevertheless")
		}
		if err != nil {
			return err
		}
		if err := vault.PromoteKey(g.Keys, id); err != nil {
			return g.explainKeyFile(err)
		}
		g.audited(ctx, "key_promoted", "", about("key", id), slog.Bool("force", c.Force))
		if c.Force {
			g.Log.Warn("processes that lack the key answer with 503 what they can't decrypt", "key", id.String())
		}
		fmt.Fprintf(g.stdout, "key %s encrypts from now on; workers re-encrypt what other keys have encrypted\n", id)
		fmt.Fprintf(g.stdout, "copy %s to every host, and follow the progress with: cardmint keys list\n", g.Keys)
		return nil
	})
}

type keysRetireCommand struct {
	ID string `arg:"" help:"The key's id, from 'keys list'."`
}

func (keysRetireCommand) Help() string {
	return "Removes a key from the key file. It is refused while anything is encrypted with it, which is counted row by row, and while a process encrypts with it, or one did or has started within the last six minutes. Backups of the database from before need the key: keep a copy of the file for as long as you keep them.\n\nExample:\n  cardmint keys retire 9b01c44d"
}

// Run retires a key.
func (c keysRetireCommand) Run(ctx context.Context, g *globals) error {
	id, err := keyID(c.ID)
	if err != nil {
		return err
	}
	return g.withAdmin(ctx, func(admin adminContext) error {
		switch have := admin.vault.Keys(); {
		case !have.Has(id):
			return g.explainKeyFile(vault.ErrNoKey)
		case have.Primary == id:
			return g.explainKeyFile(vault.ErrIsPrimary)
		case admin.db.Schema().Newer():
			return app.WithHint(errors.New("a newer version may have encrypted what this one does not know"),
				"retire the key with the newest version of cardmint that has used this database")
		}
		err := keys.Retire(ctx, admin.db, id)
		switch {
		case errors.Is(err, keys.ErrStillPrimary):
			return app.WithHint(err, "copy the key file to the host of that process, which reads it within seconds")
		case errors.Is(err, keys.ErrTooSoon):
			return app.WithHint(err, "run this command again in %d minutes at the latest", keys.SettleTime(admin.db)/time.Minute)
		case errors.Is(err, keys.ErrStillUsed):
			return app.WithHint(err,
				"wait until a worker has re-encrypted them, as 'cardmint keys list' shows. If it does not go on, the log of the worker names "+
					"the rows that can't be decrypted: restore them from a backup, 'card purge' such a card, 'token revoke' such a token, or delete such a webhook")
		case err != nil:
			return err
		}
		if err := vault.RetireKey(g.Keys, id); err != nil {
			return g.explainKeyFile(err)
		}
		g.audited(ctx, "key_retired", "", about("key", id))
		fmt.Fprintf(g.stdout, "retired key %s: nothing was encrypted with it any more; copy %s to every host\n", id, g.Keys)
		return nil
	})
}

type keysListCommand struct {
	output `embed:""`
}

func (keysListCommand) Help() string {
	return "Shows each encryption key, how many rows it has encrypted, and which running processes have it; never the keys themselves.\n\nExample:\n  cardmint keys list" + jsonHelp(keysJSON{})
}

// Run lists the keys.
func (c keysListCommand) Run(ctx context.Context, g *globals) error {
	return g.withAdminTolerating(ctx, card.ErrRetiredKey, func(admin adminContext) error {
		reports, holders, err := keys.Report(ctx, admin.db, admin.vault.Keys())
		if err != nil {
			return err
		}
		if c.JSON {
			return writeJSON(g, newKeysJSON(reports, holders))
		}
		table := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "KEY\tCREATED\tSTATE\tROWS\tPROCESSES")
		for _, k := range reports {
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d of %d\n", k.ID, formatTime(k.Created), keyState(k), k.Rows, k.Holders,
				len(holders))
		}
		if len(holders) > 0 {
			fmt.Fprintln(table, "\nPROCESS\tPRIMARY\tKEYS\tSEEN")
		}
		for _, h := range holders {
			ids := make([]string, len(h.Keys.IDs))
			for i, id := range h.Keys.IDs {
				ids[i] = id.String()
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s ago\n", h.Process, h.Keys.Primary, strings.Join(ids, " "),
				h.SeenAgo.Round(time.Second))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		return printRotationStep(g, reports, len(holders))
	})
}

// keyState describes the use of a key.
func keyState(k keys.KeyReport) string {
	switch {
	case k.RetiredAt != nil && k.Rows == 0:
		return "retired"
	case !k.Here && k.Promoted:
		return "primary, but not in this file"
	case !k.Here:
		return "not in this file"
	case k.Primary && !k.Promoted:
		return "primary here, but another was promoted"
	case k.Primary:
		return "primary"
	case k.Promoted:
		return "promoted, but not primary in this file"
	case k.Rows > 0:
		return "being replaced"
	}
	return "not used"
}

// printRotationStep prints the next step of a rotation in progress.
func printRotationStep(g *globals, reports []keys.KeyReport, processes int) error {
	at := slices.IndexFunc(reports, func(k keys.KeyReport) bool { return k.Promoted })
	for i, k := range reports {
		text := ""
		switch {
		case !k.Here || k.Primary || k.Promoted:
		case i > at && k.Rows == 0 && k.Holders == processes:
			text = "every process has key " + k.ID.String() + ": " + command("keys", "promote", k.ID.String())
		case i > at && k.Rows == 0:
			text = "not every process has key " + k.ID.String() + " yet: copy the key file to its host"
		case k.Rows == 0:
			text = "nothing is encrypted with key " + k.ID.String() + " any more: " + command("keys", "retire", k.ID.String())
		}
		if text != "" {
			if _, err := fmt.Fprintf(g.stdout, "\n%s\n", text); err != nil {
				return err
			}
		}
	}
	return nil
}

func keyID(text string) (card.KeyID, error) {
	id, err := card.ParseKeyID(text)
	return id, app.WithHint(err, "see the ids with: cardmint keys list")
}

// explainKeyFile adds a hint to an error of changing the key file.
func (g *globals) explainKeyFile(err error) error {
	switch {
	case errors.Is(err, vault.ErrPermissions):
		return app.Explain(err)
	case errors.Is(err, vault.ErrInUse):
		return app.WithHint(err, "wait for the other command to end; if none runs, delete that file and run this one again")
	case errors.Is(err, vault.ErrNoKey):
		return app.WithHint(err, "see the keys with: cardmint keys list; or copy the newest key file to --keys")
	case errors.Is(err, vault.ErrIsPrimary):
		return app.WithHint(err,
			"new data is encrypted with it: add and promote another key first, as 'cardmint keys add --help' says")
	}
	return app.WithHint(err,
		"--keys must name a key file of your own in a directory that you can write to; if there is none: cardmint keys create")
}

// keysJSON lists the keys and the processes that use them.
type keysJSON struct {
	Keys      []keyJSON     `json:"keys"`
	Processes []processJSON `json:"processes"`
}

// keyJSON is a key, with the number of rows that need it and of processes that
// have it.
type keyJSON struct {
	Key       string  `json:"key"`
	CreatedAt instant `json:"created_at"`
	State     string  `json:"state"`
	Here      bool    `json:"here"`
	Primary   bool    `json:"primary"`
	Promoted  bool    `json:"promoted"`
	RetiredAt instant `json:"retired_at"`
	Rows      int64   `json:"rows"`
	Processes int     `json:"holders"`
}

type processJSON struct {
	Process string   `json:"process"`
	Primary string   `json:"primary_key"`
	Keys    []string `json:"held_keys"`
	SeenAgo int64    `json:"seen_seconds_ago"`
}

func newKeysJSON(reports []keys.KeyReport, holders []keys.Holder) keysJSON {
	all := keysJSON{Keys: []keyJSON{}, Processes: []processJSON{}}
	for _, k := range reports {
		all.Keys = append(all.Keys,
			keyJSON{k.ID.String(), newInstant(k.Created), keyState(k), k.Here, k.Primary, k.Promoted, newInstant(k.RetiredAt),
				k.Rows,
				k.Holders})
	}
	for _, h := range holders {
		one := processJSON{Process: h.Process, Primary: h.Keys.Primary.String(), Keys: []string{},
			SeenAgo: int64(h.SeenAgo / time.Second)}
		for _, id := range h.Keys.IDs {
			one.Keys = append(one.Keys, id.String())
		}
		all.Processes = append(all.Processes, one)
	}
	return all
}
