// Adds copy buttons, tabs, a search and the current section in the table of
// contents. The pages also work without JavaScript.
"use strict";

function create(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// Copy buttons.
for (const pre of document.querySelectorAll(".code > pre, .tab > pre")) {
  const button = create("button", { className: "copy", type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre); // no permission: the reader copies the selection
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  pre.after(button);
}

// Tabs: the chosen language applies to all groups, and is stored.
const groups = [...document.querySelectorAll(".tabs")];

function choose(language) {
  for (const group of groups) {
    const tabs = [...group.querySelectorAll("[role=tab]")];
    if (tabs.some((tab) => tab.textContent === language)) {
      for (const tab of tabs) {
        const chosen = tab.textContent === language;
        tab.setAttribute("aria-selected", chosen);
        tab.tabIndex = chosen ? 0 : -1;
        document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
      }
    }
  }
}

function remember(language) {
  try {
    localStorage.setItem("cardmint-language", language);
  } catch {
    // Storage is not available: the choice applies to this page only.
  }
}

function remembered() {
  try {
    return localStorage.getItem("cardmint-language");
  } catch {
    return null;
  }
}

groups.forEach((group, i) => {
  const list = create("div", { role: "tablist", ariaLabel: "Language" });
  [...group.children].forEach((panel, j) => {
    const tab = create("button", { type: "button", role: "tab", id: `tab-${i}-${j}`, textContent: panel.querySelector(".language").textContent });
    panel.id = `panel-${i}-${j}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.setAttribute("aria-controls", panel.id);
    list.append(tab);
  });
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) {
      const before = tab.getBoundingClientRect().top;
      choose(tab.textContent);
      remember(tab.textContent);
      scrollBy({ top: tab.getBoundingClientRect().top - before, behavior: "instant" }); // groups above may have changed height
    }
  });
  list.addEventListener("keydown", (event) => {
    const tabs = [...list.children];
    const step = { ArrowRight: 1, ArrowLeft: tabs.length - 1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = tabs[(tabs.indexOf(document.activeElement) + step) % tabs.length];
      next.click();
      next.focus();
    }
  });
  group.prepend(list);
  group.classList.add("ready");
  choose(list.firstChild.textContent);
});
if (remembered()) {
  choose(remembered());
}

// The current section in the table of contents.
const entries = new Map([...document.querySelectorAll(".toc a")].map((a) => [decodeURIComponent(a.hash.slice(1)), a]));
if (entries.size > 0) {
  const headings = [...entries.keys()].map((id) => document.getElementById(id));
  const show = () => {
    const passed = headings.filter((h) => h.getBoundingClientRect().top < 120);
    const here = (passed.at(-1) ?? headings[0]).id;
    for (const [id, a] of entries) {
      if (id === here) {
        a.setAttribute("aria-current", "location");
      } else {
        a.removeAttribute("aria-current");
      }
    }
  };
  addEventListener("scroll", show, { passive: true });
  show();
}

// The search. The index is fetched when it is first needed.
const dialog = document.querySelector("dialog.search");
const input = dialog.querySelector("input");
const hits = dialog.querySelector(".hits");
const found = dialog.querySelector(".found");
let index;

async function openSearch() {
  if (!dialog.open) {
    dialog.showModal();
  }
  input.select();
  index ??= fetch("/docs/search.json").then((response) => response.json());
  await index;
}

// rank scores an entry, with 0 if a word is missing. Matches in the title score
// higher than in the text, and matches at the start of a word higher than inside.
function rank(entry, words) {
  let sum = 0;
  for (const word of words) {
    let best = 0;
    for (const [text, weight] of [[entry.title, 8], [entry.page, 3], [entry.text, 1]]) {
      const at = text.toLowerCase().indexOf(word);
      if (at >= 0) {
        best = Math.max(best, at === 0 || /\W/.test(text[at - 1]) ? weight * 2 : weight);
      }
    }
    if (best === 0) {
      return 0;
    }
    sum += best;
  }
  return entry.text.split(" ", 1)[0].toLowerCase() === words.join("") ? sum + 100 : sum; // the operation with this name
}

function excerpt(text, words) {
  const at = Math.max(0, Math.min(...words.map((word) => text.toLowerCase().indexOf(word)).filter((i) => i >= 0)));
  const start = Number.isFinite(at) ? Math.max(0, text.lastIndexOf(" ", at - 40)) : 0;
  return (start > 0 ? "…" : "") + text.slice(start, start + 140).trim() + (text.length > start + 140 ? "…" : "");
}

async function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = await index;
  const best = words.length === 0 ? [] : all.map((entry) => ({ entry, rank: rank(entry, words) })).filter((hit) => hit.rank > 0)
    .sort((a, b) => b.rank - a.rank);
  found.textContent = words.length === 0 ? "" : best.length === 1 ? "1 result" : `${best.length} results`;
  hits.replaceChildren(...best.slice(0, 20).map(({ entry }) => create("li", {},
    create("a", { href: entry.path },
      create("span", { className: "where", textContent: entry.page }),
      create("span", { className: "what", textContent: entry.title }),
      create("span", { className: "excerpt", textContent: excerpt(entry.text, words) })))));
}

input.addEventListener("input", search);
dialog.addEventListener("keydown", (event) => {
  const stops = [input, ...hits.querySelectorAll("a")];
  const at = stops.indexOf(document.activeElement);
  if (at >= 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    stops[Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), stops.length - 1)].focus();
  } else if (event.key === "Enter" && document.activeElement === input) {
    event.preventDefault();
    hits.querySelector("a")?.click();
  }
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.closest("a")) {
    dialog.close();
  }
});
const button = document.querySelector(".open-search");
button.hidden = false;
button.addEventListener("click", openSearch);
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openSearch();
  }
});
