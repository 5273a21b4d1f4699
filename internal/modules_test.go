package internal_test

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const clientModule = "github.com/cardmint/cardmint/client"

// proxy is a module proxy in a directory. What it does not have comes from the
// one that is configured.
type proxy struct{ dir, version string }

// newProxy returns a proxy whose modules all have one version, which no other
// run has: the go command keeps what it has downloaded.
func newProxy(t *testing.T) *proxy {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the module proxy")
	}
	p := &proxy{t.TempDir(), fmt.Sprintf("v0.1.0-test.%d", time.Now().UnixNano())}
	t.Cleanup(func() {
		cache := p.run(t, ".", "go", "env", "GOMODCACHE")
		for _, pattern := range []string{"github.com/cardmint/*@" + p.version, "github.com/cardmint/cardmint/*@" + p.version,
			"cache/download/github.com/cardmint/cardmint/@v/" + p.version + "*",
			"cache/download/github.com/cardmint/cardmint/client/@v/" + p.version + "*"} {
			found, _ := filepath.Glob(filepath.Join(strings.TrimSpace(cache), pattern))
			for _, path := range found {
				if err := os.RemoveAll(path); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return p
}

// run runs a command in dir as somebody else would who has only the proxy, and
// returns what it prints.
func (p *proxy) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=file://"+p.dir+","+goEnv(t, "GOPROXY"), "GONOSUMDB=github.com/cardmint/*",
		"GOWORK=off",
		"GOFLAGS=-modcacherw -tags=nomsgpack", "GOBIN="+p.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	return string(out)
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// publish puts the module in dir on the proxy, with this module file, as a tag
// of the repository does.
func (p *proxy) publish(t *testing.T, dir, module, mod string) {
	t.Helper()
	at := filepath.Join(p.dir, module, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":"2026-11-22T00:00:00Z"}`, p.version)
	for name, text := range map[string]string{"list": p.version + "\n", p.version + ".info": info,
		p.version + ".mod": mod} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(at, p.version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := zip.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if path != dir &&
				(err == nil || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" || entry.Name() == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if name == "go.mod" || !entry.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return add(w, module+"@"+p.version+"/"+filepath.ToSlash(name), text)
	})
	if err == nil {
		err = add(w, module+"@"+p.version+"/go.mod", []byte(mod))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func add(w *zip.Writer, name string, text []byte) error {
	f, err := w.Create(name)
	if err == nil {
		_, err = f.Write(text)
	}
	return err
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// versions is what a program is built from: its modules, and its version of Go.
func (p *proxy) versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	versions := map[string]string{"go": strings.TrimSpace(p.run(t, dir, "go", "list", "-m", "-f", "{{.GoVersion}}"))}
	for line := range strings.Lines(p.run(t, dir, "go", "list", "-m", "all")) {
		if module, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[module] = version
		}
	}
	return versions
}

// A shop of today, on a gin that is not the newest, imports the client: nothing
// else in it changes.
func TestClientModule_MovesNoVersionOfItsUser(t *testing.T) {
	p := newProxy(t)
	p.publish(t, "../client", clientModule, read(t, "../client/go.mod"))
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/shop\n\ngo 1.25\n\nrequire github.com/gin-gonic/gin v1.10.0\n")
	write("main.go", "package main\n\nimport \"github.com/gin-gonic/gin\"\n\nfunc main() { gin.New() }\n")
	p.run(t, dir, "go", "mod", "tidy")
	before := p.versions(t, dir)
	if before["github.com/gin-gonic/gin"] != "v1.10.0" || before["golang.org/x/text"] == "" {
		t.Fatalf("not the shop it was meant to be: %v", before)
	}

	write("main.go", `package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"`+clientModule+`"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	gin.New()
	c, _ := client.New("https://cards.example", "token", client.WithMiddleware(func(http.RoundTripper) http.RoundTripper {
		return client.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
			fmt.Println(r.UserAgent())
			return nil, http.ErrServerClosed
		})
	}))
	_, _ = c.ListCurrencies(context.Background(), client.WithRetry(1, 0))
}
`)
	p.run(t, dir, "go", "get", clientModule+"@"+p.version)
	p.run(t, dir, "go", "mod", "tidy")
	if agent, want := strings.TrimSpace(p.run(t, dir, "go", "run", ".")),
		"cardmint-go/"+strings.TrimPrefix(p.version, "v"); agent != want {
		t.Errorf("the client calls itself %s, want %s", agent, want)
	}
	after := p.versions(t, dir)
	t.Logf("%d modules before, %d after", len(before)-1, len(after)-1)
	for module, version := range before {
		if after[module] != version {
			t.Errorf("%s was %s and is %s", module, version, after[module])
		}
		delete(after, module)
	}
	want := []string{clientModule, "github.com/google/uuid", "github.com/shopspring/decimal"}
	if got := slices.Sorted(maps.Keys(after)); !slices.Equal(got, want) {
		t.Errorf("new in the build: %v", got)
	}
}

// What the README says of releases leads to a command that strangers can
// install.
func TestRelease_TheCommandCanBeInstalled(t *testing.T) {
	p := newProxy(t)
	p.publish(t, "../client", clientModule, read(t, "../client/go.mod"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(read(t, "../go.mod")), 0o644); err != nil {
		t.Fatal(err)
	}
	p.run(t, dir, "go", "mod", "edit", "-dropreplace="+clientModule, "-require="+clientModule+"@"+p.version)
	p.publish(t, "..", "github.com/cardmint/cardmint", read(t, filepath.Join(dir, "go.mod")))
	p.run(t, t.TempDir(), "go", "install", "github.com/cardmint/cardmint/cmd/cardmint@"+p.version)
	if got := p.run(t, ".", filepath.Join(p.dir, "cardmint"), "version"); !strings.Contains(got, p.version) {
		t.Errorf("%s is installed", got)
	}
}
