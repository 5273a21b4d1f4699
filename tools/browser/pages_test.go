package browser

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

func TestPages_AreReadableOnEveryScreen(t *testing.T) {
	x := open(t)
	x.show("/", 1280, "light")
	pages := eval[[]string](x, `[...document.querySelectorAll("nav a")].map(a => new URL(a.href).pathname)`)
	if len(pages) < 10 {
		t.Fatalf("only %d pages: %v", len(pages), pages)
	}
	for _, width := range []int64{320, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			for _, page := range pages {
				what := fmt.Sprintf("%s-%d-%s", path.Base(page), width, scheme)
				x.show(page, width, scheme)
				x.fits(what)
				x.accessible(what)
				x.shoot(what)
			}
		}
	}
}

// unfold expands operations of the reference, and everything in them.
const unfold = `(async () => {
	const wait = (ms) => new Promise(r => setTimeout(r, ms));
	for (const id of %s) {
		const block = document.getElementById(id);
		block.querySelector(".opblock-summary-control").click();
		for (let i = 0; i < 100 && !block.querySelector(".responses-wrapper"); i++) await wait(20);
		block.querySelector(".try-out__btn")?.click();
		[...block.querySelectorAll(".tab-item")].find(t => t.textContent.includes("Callbacks"))?.click();
		await wait(100);
		for (const b of block.querySelectorAll(".callbacks-container .opblock-summary-control")) b.click();
		for (const b of block.querySelectorAll(".model-example button.tablinks")) if (b.textContent === "Schema") b.click();
		await wait(100);
	}
	return true;
})()`

func TestReference_IsReadableWhenUnfolded(t *testing.T) {
	x := open(t)
	for _, width := range []int64{320, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			what := fmt.Sprintf("unfolded-%d-%s", width, scheme)
			x.show("/docs/reference", width, scheme)
			eval[bool](x,
				fmt.Sprintf(unfold,
					`["operations-Cards-createCard", "operations-Cards-listCards", "operations-Webhooks-createWebhook", "operations-Sandbox-simulatePayment"]`))
			if text := eval[string](x,
				`document.getElementById("operations-Webhooks-createWebhook").textContent`); !strings.Contains(text,
				"webhook-signature") {
				t.Error("the callback of createWebhook is not shown")
			}
			x.fits(what)
			x.accessible(what)
			x.shoot(what)
		}
	}
}

func TestReference_ShowsEveryOperationWhereTheGuidesLinkToIt(t *testing.T) {
	x := open(t)
	x.show("/docs/reference", 1280, "light")
	shown := eval[[]string](x, `[...document.querySelectorAll(".opblock")].map(o => o.id)`)
	all := operations(t)
	if len(all) < 15 {
		t.Fatalf("only %d operations", len(all))
	}
	for _, o := range all {
		if !slices.Contains(shown, "operations-"+o.Tag+"-"+o.ID) {
			t.Errorf("%s is not shown", o.ID)
		}
	}
	// A link expands the operation, and its note is shown.
	x.show("/docs/reference#/Sandbox/simulatePayment", 1280, "light")
	x.await(`document.querySelector("#operations-Sandbox-simulatePayment.is-open")?.textContent.includes("Outside the sandbox this operation responds with")`)
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
	x.Fatalf("Tab never reaches %s", expression)
}

func TestReference_ACardIsCreatedByKeyboardAlone(t *testing.T) {
	x := open(t)
	x.show("/docs/reference", 320, "light")
	x.await(`document.querySelector(".btn.authorize.locked") !== null`) // the token is filled in
	const within = `e.closest("#operations-Cards-createCard") && `
	x.tabTo(within + `e.matches(".opblock-summary-control")`)
	x.press(kb.Enter)
	x.tabTo(within + `e.matches(".try-out__btn")`)
	x.press(kb.Enter)
	x.tabTo(within + `e.matches(".execute")`)
	x.press(kb.Enter)
	x.await(`document.querySelector("#operations-Cards-createCard .live-responses-table tbody .response-col_status")?.textContent.startsWith("201")`)
	body := eval[string](x, `document.querySelector("#operations-Cards-createCard .live-responses-table").textContent`)
	if !strings.Contains(body, `"awaiting_payment"`) || !strings.Contains(body, "x-request-id") {
		t.Errorf("the response is not shown: %.500s", body)
	}
	x.fits("the response")
	x.accessible("the response")
	x.shoot("created-320-light")
}

// mark numbers the clickable elements, and returns their number.
const mark = `(() => {
	const seen = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility === "visible";
	const mouse = [...document.querySelectorAll("body *")].filter(e => seen(e) && !e.disabled && (
		e.matches("a[href], button, input, select, textarea, summary, [tabindex='0'], [role=button]") ||
		getComputedStyle(e).cursor === "pointer" && getComputedStyle(e.parentElement).cursor !== "pointer" && !e.closest("a, button, label, [role=button], [tabindex='0']")));
	const reached = mouse.filter(e => !(e.tabIndex < 0 && e.closest(".opblock")?.querySelector(".opblock-summary-control")) &&
		!(e.matches(":not(a, button, input, select, textarea, [tabindex])") && e.querySelector("a, button, [tabindex='0']")));
	reached.forEach((e, i) => e.dataset.stop = i);
	document.activeElement.blur();
	return reached.length;
})()`

func TestPages_AreReachedByKeyboard(t *testing.T) {
	x := open(t)
	for _, page := range []string{"/docs", "/docs/payments", "/docs/webhooks", "/docs/reference"} {
		x.show(page, 1280, "light")
		if page == "/docs/reference" {
			eval[bool](x, fmt.Sprintf(unfold, `["operations-Webhooks-createWebhook"]`))
		}
		n := eval[int](x, mark)
		if n < 10 {
			t.Fatalf("%s: only %d stops", page, n)
		}
		reached, invisible := map[string]bool{}, 0
		for range 3*n + 50 {
			if len(reached) == n {
				break
			}
			x.press(kb.Tab)
			at := eval[[]string](x, `(e => [e.dataset?.stop ?? "", getComputedStyle(e).outlineStyle])(document.activeElement)`)
			if at[0] != "" {
				reached[at[0]] = true
				if at[1] == "none" {
					invisible++
				}
			}
		}
		if invisible > 0 {
			t.Errorf("%s: %d elements have no visible focus", page, invisible)
		}
		for i := range n {
			if !reached[fmt.Sprint(i)] {
				t.Errorf("%s: Tab never reaches %s", page,
					eval[string](x, fmt.Sprintf(`document.querySelector("[data-stop='%d']").outerHTML.slice(0, 200)`, i)))
			}
		}
	}
}
