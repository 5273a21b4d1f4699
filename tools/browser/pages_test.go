package browser

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// menu returns the paths that the menu of a page lists.
func (x *tab) menu(page string) []string {
	x.Helper()
	x.show(page, 1280, "light")
	return eval[[]string](x, `[...document.querySelectorAll("#menu a")].map(a => new URL(a.href).pathname)`)
}

func TestPages_AreReadableOnEveryScreen(t *testing.T) {
	x := open(t)
	all := x.menu("/docs")
	if len(all) < 10 {
		t.Fatalf("only %d pages: %v", len(all), all)
	}
	all = append(all, "/docs/none")
	slices.Sort(all)
	for _, width := range []int64{320, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			for _, page := range slices.Compact(all) {
				what := fmt.Sprintf("%s-%d-%s", path.Base(page), width, scheme)
				if page == "/docs/none" {
					x.ignore("404")
				}
				x.show(page, width, scheme)
				x.fits(what)
				x.accessible(what)
				x.shoot(what)
			}
		}
	}
}

func TestOperatorPages_AreReadableOnEveryScreen(t *testing.T) {
	x := open(t)
	all := x.menu("/docs/operate")
	if len(all) < 20 {
		t.Fatalf("only %d pages: %v", len(all), all)
	}
	for i, page := range all {
		if !strings.HasPrefix(page, "/docs/operate") {
			continue
		}
		scheme := []string{"light", "dark"}[i%2]
		for _, width := range []int64{320, 1280} {
			what := fmt.Sprintf("operate-%s-%d-%s", path.Base(page), width, scheme)
			x.show(page, width, scheme)
			x.fits(what)
			x.accessible(what)
			x.shoot(what)
		}
	}
}

// On a wide screen, lines stay short enough to read.
func TestPages_WideScreen_KeepsLinesShort(t *testing.T) {
	x := open(t)
	x.show("/docs/payments", 1920, "light")
	if n := eval[float64](x, `(p => p.getBoundingClientRect().width / parseFloat(getComputedStyle(p).fontSize))(document.querySelector("article p"))`); n > 46 {
		t.Errorf("paragraphs are %.0f em wide", n)
	}
	x.shoot("payments-1920-light")
}

// Without JavaScript, all tabs are visible and the operations are listed.
func TestPages_WithoutJavaScript_ShowEverything(t *testing.T) {
	x := open(t)
	x.need(chromedp.Do(x.ctx, chromedp.EmulateViewport(320, 900)))
	_, err := chromedp.Call(x.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	x.need(err)
	x.need(chromedp.Do(x.ctx, chromedp.Navigate(service+"/docs/quickstart")))
	const visible = `[...document.querySelectorAll(%q)].filter(e => e.checkVisibility()).map(e => e.textContent.trim())`
	if got := eval[[]string](x, fmt.Sprintf(visible, ".tab > .language")); !slices.Equal(got, []string{"curl", "Go", "TypeScript"}) {
		t.Errorf("languages: %v", got)
	}
	if got := eval[[]string](x, fmt.Sprintf(visible, ".copy, .open-search, [role=tab]")); len(got) > 0 {
		t.Errorf("buttons without a function: %v", got)
	}
	x.fits("quick start without JavaScript")
	x.need(chromedp.Do(x.ctx, chromedp.Click(".open-menu")))
	if got := eval[[]string](x, fmt.Sprintf(visible, "#menu a")); len(got) < 10 {
		t.Errorf("the menu shows %v", got)
	}
	x.need(chromedp.Do(x.ctx, chromedp.Navigate(service+"/docs/reference")))
	got := eval[[]string](x, fmt.Sprintf(visible, "#reference h3"))
	for _, o := range operations(t) {
		if !slices.Contains(got, o.Summary) {
			t.Errorf("%s is not listed", o.ID)
		}
	}
	if got := eval[[]string](x, fmt.Sprintf(visible, `a[href="/openapi.yaml"]`)); len(got) != 1 {
		t.Errorf("links to the contract: %v", got)
	}
	x.fits("reference without JavaScript")
}

func TestMenu_OnAPhone_OpensByKeyboard(t *testing.T) {
	x := open(t)
	x.show("/docs/webhooks", 390, "dark")
	if eval[bool](x, `document.querySelector("#menu").checkVisibility()`) {
		t.Fatal("the menu covers the page")
	}
	x.tabTo(`e.matches(".open-menu")`)
	x.press(kb.Enter)
	x.tabTo(`e.matches("#menu a") && e.textContent === "Errors"`)
	x.accessible("menu")
	x.shoot("menu-390-dark")
	x.press(kb.Enter)
	x.await(`location.pathname === "/docs/errors"`)
}

func TestTabs_ChoiceIsShownEverywhereAndRemembered(t *testing.T) {
	x := open(t)
	shown := func() []string {
		return eval[[]string](x, `[...document.querySelectorAll("[role=tabpanel]")].filter(e => e.checkVisibility()).map(e => e.querySelector(".language").textContent)`)
	}
	x.show("/docs/quickstart", 1280, "light")
	if got := shown(); !slices.Equal(got, []string{"curl"}) {
		t.Fatalf("at first: %v", got)
	}
	x.tabTo(`e.matches("[role=tab]")`)
	x.press(kb.ArrowRight)
	if got := shown(); !slices.Equal(got, []string{"Go"}) {
		t.Errorf("after the right arrow: %v", got)
	}
	x.press(kb.ArrowRight)
	x.accessible("tabs")
	x.show("/docs/webhooks", 1280, "light")
	if got := shown(); !slices.Equal(got, []string{"TypeScript"}) {
		t.Errorf("on another page: %v", got)
	}
}

func TestCopy_CodeIsInTheClipboard(t *testing.T) {
	x := open(t)
	x.show("/docs/quickstart", 1280, "light")
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		_, err := chromedp.Call(x.ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted, Origin: service})
		x.need(err)
	}
	x.tabTo(`e.matches(".copy")`)
	x.press(kb.Enter)
	x.await(`document.querySelector(".copy").textContent === "Copied"`)
	if got := eval[string](x, `navigator.clipboard.readText()`); got != "make run\n" {
		t.Errorf("copied %q", got)
	}
}

// The commands of the quick start buy a card.
func TestQuickStart_Commands_BuyACard(t *testing.T) {
	x := open(t)
	x.show("/docs/reference", 1280, "light")
	token := eval[string](x, `document.querySelector("meta[name=cardmint-token]").content`)
	x.show("/docs/quickstart", 1280, "light")
	script := eval[string](x, `document.querySelector("[role=tabpanel] pre").textContent`)
	shell := exec.Command("bash", "-euo", "pipefail", "-c", script)
	shell.Env = append(os.Environ(), "CARDMINT_URL="+service, "CARDMINT_TOKEN="+token)
	out, err := shell.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"generated"`) || !strings.Contains(string(out), `"card_number": "99`) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSearch_FindsSectionsAndOperationsByKeyboard(t *testing.T) {
	x := open(t)
	first := func() string {
		return eval[string](x, `document.querySelector(".hits a")?.getAttribute("href") ?? ""`)
	}
	for _, width := range []int64{320, 1280} {
		x.show("/docs/payments", width, "dark")
		x.tabTo(`e.matches(".open-search")`)
		x.press(kb.Enter)
		for query, want := range map[string]string{
			"createcard":    "/docs/reference#tag/Cards/createCard",
			"rate_limited":  "/docs/errors#rate_limited",
			"cancel a card": "/docs/reference#tag/Cards/cancelCard",
			"split brain":   "/docs/operate/split-brain",
			"signature":     "/docs/webhooks#verify-the-signature",
		} {
			eval[bool](x, `(document.querySelector("dialog input").select(), true)`)
			x.press(query)
			x.await(fmt.Sprintf(`document.querySelector(".hits a")?.getAttribute("href") === %q`, want))
			if got := first(); got != want {
				t.Errorf("%s leads to %s", query, got)
			}
		}
		eval[bool](x, `(document.querySelector("dialog input").select(), true)`)
		x.press("nothing-has-this-name")
		x.await(`document.querySelector("dialog [role=status]").textContent === "0 results"`)
		eval[bool](x, `(document.querySelector("dialog input").select(), true)`)
		x.press("refund")
		x.await(`document.querySelectorAll(".hits a").length > 5`)
		what := fmt.Sprintf("search-%d", width)
		x.fits(what)
		x.accessible(what)
		x.shoot(what)
		x.press(kb.ArrowDown)
		to := eval[string](x, `document.activeElement.getAttribute("href")`)
		x.press(kb.Enter)
		x.await(fmt.Sprintf(`location.pathname + location.hash === %q`, to))
	}
}

func TestReference_ShowsEveryOperationInTheContractsOrder(t *testing.T) {
	x := open(t)
	// Without JavaScript, the page lists them in the contract's order.
	x.show("/docs/reference", 1280, "light")
	want := eval[[]string](x, `fetch("/docs/reference").then(r => r.text()).then(text => [...new DOMParser().parseFromString(text, "text/html").querySelectorAll("#reference section h3")].map(h => h.textContent))`)
	if len(want) != len(operations(t)) || len(want) < 15 {
		t.Fatalf("%d operations are listed", len(want))
	}
	// Unfold the groups in the sidebar.
	eval[bool](x, `(async () => {
		for (let folded; (folded = [...document.querySelectorAll("#scalar aside button")].find(b => b.textContent.includes("Open Group") && !b.textContent.startsWith("Introduction"))); ) {
			folded.click();
			await new Promise(r => setTimeout(r, 100));
		}
		return true;
	})()`)
	got := eval[[]string](x, `[...document.querySelectorAll("#scalar aside a, #scalar aside button")].filter(e => e.textContent.includes("HTTP Method")).map(e => e.textContent.replace(/HTTP Method.*/s, "").trim())`)
	if !slices.Equal(got, want) {
		t.Errorf("the sidebar lists %q, want %q", got, want)
	}
}

func TestReference_DeepLinkShowsTheOperation(t *testing.T) {
	x := open(t)
	x.show("/docs/reference#tag/Sandbox/simulatePayment", 1280, "light")
	x.await(`(e => e && e.textContent.includes("Outside the sandbox this operation responds with") &&
		e.getBoundingClientRect().top < innerHeight && e.getBoundingClientRect().bottom > 0)(document.querySelector("#scalar section[id$='/simulatePayment']"))`)
}

func TestReference_IsReadableWhenUnfolded(t *testing.T) {
	x := open(t)
	for _, width := range []int64{320, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			what := fmt.Sprintf("unfolded-%d-%s", width, scheme)
			x.show("/docs/reference#tag/Webhooks/createWebhook", width, scheme)
			x.await(`document.querySelector("#scalar section[id$='/createWebhook'] button[aria-expanded]") !== null`)
			eval[bool](x, `(async () => {
				for (const b of document.querySelectorAll("#scalar section[id$='/createWebhook'] button[aria-expanded=false]:not([aria-haspopup], [id*=popover])")) b.click();
				await new Promise(r => setTimeout(r, 500));
				return true;
			})()`)
			if text := eval[string](x, `document.querySelector("#scalar section[id$='/createWebhook']").textContent`); !strings.Contains(text, "webhook-signature") {
				t.Error("the callback of createWebhook is not shown")
			}
			x.fits(what)
			x.accessible(what)
			x.shoot(what)
		}
	}
}

// tabTo presses Tab until an expression about the focused element, e, is true.
func (x *tab) tabTo(expression string) {
	x.Helper()
	for range 400 {
		x.press(kb.Tab)
		if eval[bool](x, "(e => !!("+expression+"))(document.activeElement)") {
			return
		}
	}
	x.Fatalf("not reached by Tab: %s", expression)
}

func TestReference_ACardIsCreatedByKeyboardAlone(t *testing.T) {
	x := open(t)
	for _, width := range []int64{320, 1280} {
		x.show("/docs/reference#tag/Cards/createCard", width, "light")
		x.tabTo(`e.closest("section[id$='/createCard']") && e.textContent.includes("Test Request")`)
		x.press(kb.Enter)
		x.await(`[...document.querySelectorAll("[role=dialog] button")].some(b => b.textContent.startsWith("Send"))`)
		x.await(`document.getAnimations().every(a => a.playState !== "running")`)
		x.accessible("the request")
		x.shoot(fmt.Sprintf("request-%d-light", width))
		x.tabTo(`e.closest("[role=dialog]") && e.textContent.startsWith("Send") && e.checkVisibility()`)
		x.press(kb.Enter)
		x.await(`document.querySelector("[role=dialog]").textContent.includes("201")`)
		x.await(`document.querySelector("[role=dialog]").textContent.includes('awaiting_payment')`)
		x.tabTo(`e.matches("[role=dialog] button") && e.textContent.includes("Response Headers")`)
		x.press(" ")
		x.await(`document.querySelector("[role=dialog]").textContent.toLowerCase().includes("x-request-id")`)
		x.fits("the response")
		x.accessible("the response")
		x.shoot(fmt.Sprintf("created-%d-light", width))
	}
}

// mark numbers the elements that respond to a mouse, and returns their count.
const mark = `(() => {
	const seen = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility === "visible";
	const mouse = [...document.querySelectorAll("body *")].filter(e => seen(e) && !e.disabled && (
		e.matches("a[href], button, input, select, textarea, summary, [tabindex='0'], [role=button]") ||
		getComputedStyle(e).cursor === "pointer" && getComputedStyle(e.parentElement).cursor !== "pointer" && !e.closest("a, button, label, [role=button], [tabindex='0']")));
	const reached = mouse.filter(e => !(e.matches("[role=tab]") && e.tabIndex < 0) &&
		!(e.matches(":not(a, button, input, select, textarea, [tabindex])") && e.querySelector("a, button, [tabindex='0']")));
	reached.forEach((e, i) => e.dataset.stop = i);
	document.activeElement.blur();
	return reached.length;
})()`

func TestPages_AreReachedByKeyboard(t *testing.T) {
	x := open(t)
	for _, page := range []string{"/docs", "/docs/quickstart", "/docs/payments", "/docs/webhooks", "/docs/reference"} {
		x.show(page, 1280, "light")
		n := eval[int](x, mark)
		if n < 10 {
			t.Fatalf("%s: only %d stops", page, n)
		}
		reached, invisible := map[string]bool{}, map[string]bool{}
		for range 3*n + 50 {
			if len(reached) == n {
				break
			}
			x.press(kb.Tab)
			at := eval[[]string](x, `(e => [e.dataset?.stop ?? "", getComputedStyle(e).outlineStyle, e.outerHTML.slice(0, 200)])(document.activeElement)`)
			if at[0] != "" {
				reached[at[0]] = true
				if at[1] == "none" {
					invisible[at[2]] = true
				}
			}
		}
		for stop := range invisible {
			t.Errorf("%s: focus is not visible: %s", page, stop)
		}
		for i := range n {
			if !reached[fmt.Sprint(i)] {
				t.Errorf("%s: not reached by Tab: %s", page,
					eval[string](x, fmt.Sprintf(`document.querySelector("[data-stop='%d']")?.outerHTML.slice(0, 200) ?? "an element that was replaced"`, i)))
			}
		}
	}
}
