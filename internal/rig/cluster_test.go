package rig_test

import (
	"testing"

	"github.com/cardmint/cardmint/internal/rig"
)

func TestCluster_AStandbyHasWhatWasCommittedAndCanTakeOver(t *testing.T) {
	t.Parallel()
	primary := rig.NewCluster(t)
	standby := primary.Standby(t, "second")
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	primary.Exec(t, "CREATE TABLE cards AS SELECT 7 AS number")
	if got := primary.Value(t, "SELECT application_name FROM pg_stat_replication"); got != "second" {
		t.Errorf("the standby is called %s", got)
	}
	standby.Freeze()
	if err := rig.OpenSQL(t, standby.URL("postgres")+"&connect_timeout=1").Ping(); err == nil {
		t.Error("a frozen server answers")
	}
	standby.Thaw()
	primary.Stop()
	standby.Promote(t)
	if got := standby.Value(t, "SELECT number FROM cards"); got != "7" {
		t.Errorf("number %s", got)
	}
	primary.Follow(t, standby, "first")
	standby.Stop()
	if got := primary.Value(t, "SELECT number || ' ' || pg_is_in_recovery() FROM cards"); got != "7 true" {
		t.Errorf("what was the primary has %s", got)
	}
}

func TestPgBouncer_PassesOn(t *testing.T) {
	t.Parallel()
	url := rig.PgBouncer(t, rig.NewCluster(t).URL("postgres"), "pool_mode = session")
	var one int
	if err := rig.OpenSQL(t, url).QueryRow("SELECT 1").Scan(&one); err != nil || one != 1 {
		t.Errorf("%d, %v", one, err)
	}
}
