package cli

import (
	"time"

	"github.com/cardmint/cardmint/internal/keys"
)

// keysJSON is what and who needs which key, for programs.
type keysJSON struct {
	Keys      []keyJSON     `json:"keys"`
	Processes []processJSON `json:"processes"`
}

// keyJSON is a key. Rows and processes are numbers of those that need it, and
// that have it.
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
			keyJSON{k.ID.String(), maybe(k.Created), keyState(k), k.Here, k.Primary, k.Promoted, maybe(k.RetiredAt), k.Rows,
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
