package store

import (
	"context"
	"time"
)

// forgetUsage is how long the usage of a process is kept if it did not shut
// down properly.
const forgetUsage = time.Hour

// SaveUsage implements limit.Store.
func (s *Store) SaveUsage(ctx context.Context, process, usage string) error {
	now := s.dialect.now
	_, err := s.exec(ctx, s.w, "save request usage",
		"INSERT INTO request_usage (process, usage, saved_at) VALUES (?, ?, "+now+
			") ON CONFLICT (process) DO UPDATE SET usage = excluded.usage, saved_at = excluded.saved_at", process, usage)
	return err
}

// DeleteUsage implements limit.Store.
func (s *Store) DeleteUsage(ctx context.Context, process string) error {
	_, err := s.exec(ctx, s.w, "delete request usage",
		"DELETE FROM request_usage WHERE process = ? OR saved_at < "+s.dialect.now+" - ?",
		process, forgetUsage.Milliseconds())
	return err
}

// UsageOfOthers implements limit.Store.
func (s *Store) UsageOfOthers(ctx context.Context, process string, within time.Duration) (map[string]string, error) {
	var found []struct {
		Process string `db:"process"`
		Usage   string `db:"usage"`
	}
	err := s.list(ctx, s.r, &found, "select request usage",
		"SELECT process, usage FROM request_usage WHERE process <> ? AND saved_at > "+s.dialect.now+" - ?",
		process, within.Milliseconds())
	all := make(map[string]string, len(found))
	for _, f := range found {
		all[f.Process] = f.Usage
	}
	return all, err
}
