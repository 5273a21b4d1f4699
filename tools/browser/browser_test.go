// Package browser tests the pages of the service in Chromium: on wide and
// narrow screens, and by keyboard.
package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// service is the address of the service under test, which runs in development
// mode.
var service string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cardmint-browser")
	if err != nil {
		panic(err)
	}
	stop, err := start(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// start builds and starts the service.
func start(dir string) (stop func(), err error) {
	program := filepath.Join(dir, "cardmint")
	build := exec.Command("go", "build", "-tags=nomsgpack", "-o", program, "./cmd/cardmint")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	dev := exec.Command(program, "dev", "--listen", "127.0.0.1:0", "--database-url", "sqlite:"+filepath.Join(dir, "x.db"),
		"--keys", filepath.Join(dir, "x.keys"))
	out, err := dev.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := dev.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if docs, is := strings.CutPrefix(lines.Text(), "docs: "); is {
			service = strings.TrimSuffix(docs, "/docs")
			return func() { _ = dev.Process.Signal(os.Interrupt); _ = dev.Wait() }, nil
		}
	}
	return nil, fmt.Errorf("the service did not print its address: %w", dev.Wait())
}

// tab is a page in a browser. Log messages and requests to other hosts fail its
// test.
type tab struct {
	*testing.T
	ctx      context.Context
	expected atomic.Pointer[string]
}

// ignore permits log entries that contain text.
func (x *tab) ignore(text string) { x.expected.Store(&text) }

func open(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	x := &tab{T: t, ctx: ctx}
	var mu sync.Mutex
	var faults []string
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, fault := range faults {
			t.Error(fault)
		}
	})
	report := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	x.need(chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			for _, arg := range e.Args {
				if strings.Contains(string(arg.Value), "@scalar/api-reference@") {
					continue // it logs its version
				}
				report("console: %s: %s %s", e.Type, arg.Value, arg.Description)
			}
		case *runtime.EventExceptionThrown:
			report("exception: %s", e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if text := x.expected.Load(); text == nil || !strings.Contains(e.Entry.Text, *text) {
				report("log: %s %s", e.Entry.Text, e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if to := e.Request.URL; !strings.HasPrefix(to, service+"/") && !strings.HasPrefix(to, "data:") {
				report("request to another host: %s", to)
			}
		}
	}))
	return x
}

func (x *tab) need(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// show opens a page on a screen of the given width, in light or dark colors,
// and waits until it has loaded.
func (x *tab) show(path string, width int64, scheme string) {
	x.Helper()
	x.need(chromedp.Do(x.ctx, chromedp.EmulateViewport(width, 900)))
	_, err := chromedp.Call(x.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	x.need(err)
	x.need(chromedp.Do(x.ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(service+path)))
	if strings.HasPrefix(path, "/docs/reference") {
		x.await(`document.querySelector("#scalar [id$='/tag/Cards']") !== null`)
	}
}

// eval evaluates an expression, which may be a promise.
func eval[T any](x *tab, expression string) T {
	x.Helper()
	value, err := chromedp.Run(x.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		x.Fatalf("%s: %v", expression, err)
	}
	return value
}

// await waits until an expression is true. Evaluation may fail while one page
// replaces another.
func (x *tab) await(expression string) {
	x.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := chromedp.Run(x.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(time.Until(deadline))))
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "Cannot find context") || time.Now().After(deadline) {
			x.Fatalf("waiting for %s: %v", expression, err)
		}
	}
}

// press presses a key.
func (x *tab) press(key string) {
	x.Helper()
	x.need(chromedp.Do(x.ctx, chromedp.KeyEvent(key)))
}

// operation is an operation of the contract.
type operation struct{ ID, Tag, Summary string }

// operations returns the operations of the published contract.
func operations(t *testing.T) (all []operation) {
	t.Helper()
	res, err := http.Get(service + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var contract struct {
		Paths map[string]map[string]struct {
			OperationID string
			Summary     string
			Tags        []string
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&contract); err != nil {
		t.Fatal(err)
	}
	for _, item := range contract.Paths {
		for _, o := range item {
			if o.OperationID != "" {
				all = append(all, operation{o.OperationID, o.Tags[0], o.Summary})
			}
		}
	}
	return all
}

// rules returns the script of axe, an accessibility checker.
var rules = sync.OnceValues(func() (string, error) {
	script, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	return string(script), err
})

// accessible fails the test if axe finds violations of WCAG 2.2, levels A and
// AA.
func (x *tab) accessible(what string) {
	x.Helper()
	script, err := rules()
	x.need(err)
	eval[bool](x, script+"\n;true")
	found := eval[[]string](x, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}).then(r => r.violations.flatMap(
		v => v.nodes.slice(0, 12).map(n => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary.replace(/\s+/g, " ").slice(0, 300) + " " + n.html.slice(0, 160))))`)
	for _, f := range found {
		x.Errorf("%s: %s", what, f)
	}
}

// fits fails the test if the page scrolls horizontally.
func (x *tab) fits(what string) {
	x.Helper()
	wide := eval[[]string](x, `(() => {
		const room = document.documentElement.clientWidth;
		if (document.scrollingElement.scrollWidth <= room) return [];
		return [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > room + 1).map(e => e.outerHTML.slice(0, 120)).slice(0, 8);
	})()`)
	if len(wide) > 0 {
		x.Errorf("%s is wider than the screen: %s", what, strings.Join(wide, "\n"))
	}
}

// shoot saves a screenshot of the page if SCREENSHOTS names a directory.
func (x *tab) shoot(name string) {
	x.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(x.ctx, chromedp.FullScreenshot(100))
	x.need(err)
	x.need(os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}
