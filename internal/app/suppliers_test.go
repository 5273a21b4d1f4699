package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cardmint/cardmint/internal/card"
)

// canary is a secret written into the file by mistake. No error may quote it.
const canary = "hunter2"

func TestParseSuppliers_BadSetting_IsNamed(t *testing.T) {
	t.Parallel()
	const ok = "[[supplier]]\nname = \"first\"\nkind = \"sandbox\"\n"
	for name, tt := range map[string]struct{ text, want string }{
		"fine":         {ok, ""},
		"nothing":      {"", "it names no supplier: begin one with [[supplier]]"},
		"a comment":    {"# none yet\n", "it names no supplier: begin one with [[supplier]]"},
		"not TOML":     {ok + "priority = \n", "line 4, column "},
		"an open text": {ok + "min_usd = \"" + canary + "\n", "line 4, column "},
		"no setting":   {ok + "pasword = \"" + canary + "\"\n", `line 4: there is no setting "supplier.pasword"`},
		"outside":      {"password = \"" + canary + "\"\n" + ok, `line 1: there is no setting "password"`},
		"a number as a text": {ok + "priority = \"" + canary + "\"\n",
			"line 4, column 12: the value of priority is not TOML, or not of its type"},
		"a text as a number": {ok + "min_usd = 50\n",
			"line 4, column 11: the value of min_usd is not TOML, or not of its type"},
		"twice":      {ok + "kind = \"" + canary + "\"\n", "is not TOML: a setting may be there twice"},
		"not a list": {strings.Replace(ok, "[[supplier]]", "[supplier]", 1), "line 1"},
		"no name":    {"[[supplier]]\nkind = \"sandbox\"\n", "name must be 1 to 32 lower-case letters"},
		"a bad name": {strings.Replace(ok, "first", "First", 1), "name must be 1 to 32 lower-case letters"},
		"a long name": {strings.Replace(ok, "first", strings.Repeat("x", 33), 1),
			"name must be 1 to 32 lower-case letters"},
		"a name with a digit": {strings.Replace(ok, "first", "1st", 1), "name must be 1 to 32 lower-case letters"},
		"the longest name":    {strings.Replace(ok, "first", strings.Repeat("x", 32), 1), ""},
		"the same name":       {ok + ok, `two suppliers have the name "first"`},
		"no kind":             {"[[supplier]]\nname = \"first\"\n", "choose one of: "},
		"at once, too many":   {ok + "at_once = 257\n", "at_once must be between 1 and 256"},
		"at once, negative":   {ok + "at_once = -1\n", "at_once must be between 1 and 256"},
		"a negative limit": {ok + "requests_per_second = -0.5\n",
			"requests_per_second must be between 0, for no limit, and 10000"},
		"a limit of nothing": {ok + "requests_per_second = nan\n",
			"requests_per_second must be between 0, for no limit, and 10000"},
		"an endless limit": {ok + "requests_per_second = inf\n",
			"requests_per_second must be between 0, for no limit, and 10000"},
		"too little": {ok + "min_usd = \"49.99\"\n",
			`min_usd must be between 50 and 750 US dollars, as a text: min_usd = "50"`},
		"too much": {ok + "max_usd = \"750.01\"\n",
			`max_usd must be between 50 and 750 US dollars, as a text: max_usd = "50"`},
		"no amount": {ok + "max_usd = \"" + canary + "\"\n",
			`max_usd must be between 50 and 750 US dollars, as a text: max_usd = "50"`},
		"the wrong way round": {ok + "min_usd = \"200\"\nmax_usd = \"100\"\n", "min_usd is more than max_usd"},
		"in the second": {ok + strings.Replace(ok, "first", "second", 1) + "at_once = -1\n",
			`supplier 2 ("second"): at_once must be`},
	} {
		_, err := parseSuppliers([]byte(tt.text), "")
		switch {
		case (err == nil) != (tt.want == ""):
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		case err != nil && !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		case err != nil && strings.Contains(err.Error(), canary):
			t.Errorf("%s: quotes the file: %v", name, err)
		}
	}
}

func TestParseSuppliers_Order_IsByPriority(t *testing.T) {
	t.Parallel()
	entries, err := parseSuppliers([]byte(`
[[supplier]]
name = "last"
kind = "sandbox"
priority = 9
[[supplier]]
name = "second"
kind = "sandbox"
min_usd = "100.50"
at_once = 3
requests_per_second = 2.5
[[supplier]]
name = "third"
kind = "sandbox"
max_usd = "100"
[[supplier]]
name = "first"
kind = "sandbox"
priority = -1
behaviour = "declining"
`), "")
	if err != nil {
		t.Fatal(err)
	}
	_, routes, err := Suppliers{Entries: entries}.Open(SupplierOptions{})
	if err != nil {
		t.Fatal(err)
	}
	type route struct {
		Name      string
		Min, Max  card.USD
		AtOnce    int
		PerSecond float64
	}
	var got []route
	for _, r := range routes {
		got = append(got, route{r.Supplier.Name(), r.Min, r.Max, r.Concurrency, r.PerSecond})
	}
	want := []route{{"first", 50_00, 750_00, 0, 0}, {"second", 100_50, 750_00, 3, 2.5}, {"third", 50_00, 100_00, 0, 0},
		{"last", 50_00, 750_00, 0, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSuppliersOpen_UnknownBehavior_IsRefused(t *testing.T) {
	t.Parallel()
	entries, err := parseSuppliers([]byte("[[supplier]]\nname = \"a\"\nkind = \"sandbox\"\nbehaviour = \"odd\"\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Suppliers{Entries: entries}).Open(SupplierOptions{}); err == nil ||
		!strings.Contains(err.Error(), `supplier "a": there is no behavior`) {
		t.Errorf("error %v", err)
	}
}

func TestSupplierConfigRead_SandboxInLiveMode_IsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "suppliers.toml")
	write(t, file, "[[supplier]]\nname = \"a\"\nkind = \"sandbox\"\n", 0o644)
	for _, f := range []SupplierConfig{{}, {File: file}} {
		if _, err := f.Read(card.LiveMode); err == nil || !strings.Contains(err.Error(), "are not real") {
			t.Errorf("error %v", err)
		}
		if _, err := f.Read(card.TestMode); err != nil {
			t.Error(err)
		}
	}
	if _, err := (SupplierConfig{Patience: -1}).Read(card.TestMode); err == nil {
		t.Error("a negative patience is accepted")
	}
	if _, err := (SupplierConfig{File: file + "x"}).Read(card.TestMode); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
}

func TestSupplierEntrySecret_OthersHaveAccess_IsRefused(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	write(t, filepath.Join(directory, "mine"), canary+"\n", 0o600)
	write(t, filepath.Join(directory, "ours"), canary, 0o640)
	write(t, filepath.Join(directory, "all"), canary, 0o604)
	write(t, filepath.Join(directory, "empty"), " \n", 0o600)
	e := SupplierEntry{directory: directory}
	for path, want := range map[string]string{
		"mine": "", filepath.Join(directory, "mine"): "", "ours": "can be read by others than its owner: chmod 600",
		"all":   "can be read by others than its owner: chmod 600",
		"empty": "is empty", "none": "no such file", "": "token_file is missing",
	} {
		got, err := e.secret("token_file", path)
		switch {
		case want == "" && (err != nil || got != canary):
			t.Errorf("%s: %q, error %v", path, got.Reveal(), err)
		case want != "" &&
			(err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "token_file") ||
				strings.Contains(err.Error(), canary) || got != ""):
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestSuppliers_RealCardsInTestMode_AreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"key": "rk_live_1", "page": strings.Repeat("x", 32)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := parseSuppliers(
		[]byte("[[supplier]]\nname = \"s\"\nkind = \"stripe\"\nkey_file = \"key\"\npage_secret_file = \"page\"\ncardholder = \"ich_1\"\npage = \"https://cards.example\"\n"), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Suppliers{Entries: entries}).Open(SupplierOptions{Mode: card.TestMode}); err == nil {
		t.Error("test mode, where money is simulated, makes real cards")
	}
}
