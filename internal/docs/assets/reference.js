// Replaces the plain list of operations by an interactive reference. The page
// contains a token only if the service runs in development mode.
"use strict";

const list = document.getElementById("reference");
const token = document.querySelector('meta[name="cardmint-token"]')?.content ?? "";

// sortOperations sorts the operations like the plain list, which has the order
// of the contract: objects in JSON have no order.
function sortOperations(paths) {
  const sorted = {};
  for (const { dataset } of list.querySelectorAll("section")) {
    const method = dataset.method.toLowerCase();
    sorted[dataset.path] ??= {};
    sorted[dataset.path][method] = paths[dataset.path][method];
  }
  return sorted;
}

// clearExamples moves the examples of optional parameters to their descriptions,
// because forms would otherwise send them.
function clearExamples(contract) {
  const parameters = [
    ...Object.values(contract.components.parameters ?? {}),
    ...Object.values(contract.paths).flatMap((item) => Object.values(item).flatMap((operation) => operation.parameters ?? [])),
  ].filter((parameter) => !parameter.$ref && !parameter.required);
  for (const parameter of parameters) {
    const example = parameter.example ?? parameter.schema?.example;
    if (example !== undefined) {
      parameter.description = `${parameter.description ?? ""}\n\nExample: \`${example}\``;
    }
    delete parameter.example;
    if (parameter.schema) {
      delete parameter.schema.example;
    }
    parameter.examples = { empty: { value: "", "x-disabled": true } };
  }
}

// trimSamples removes the empty line at the end of each sample.
function trimSamples(contract) {
  for (const operation of Object.values(contract.paths).flatMap(Object.values)) {
    for (const sample of operation["x-codeSamples"] ?? []) {
      sample.source = sample.source.trimEnd();
    }
  }
}

// fixAccessibility adds missing names and roles to Scalar's controls, and makes
// scrollable areas reachable by keyboard. It depends on class names, so the
// version of Scalar is pinned.
function fixAccessibility(place) {
  const each = (selector, change) => place.querySelectorAll(selector).forEach(change);
  const named = (element) => element.textContent.trim() !== "" ||
    (element.getAttribute("aria-labelledby") ?? "").split(" ").some((id) => document.getElementById(id)?.textContent.trim());
  const name = (element, text) => {
    element.removeAttribute("aria-labelledby");
    element.setAttribute("aria-label", text);
  };
  each(".cm-content:not([aria-label])", (editor) => name(editor, editor.contentEditable === "true" ? "Request body" : "Response body"));
  each(".code-input-lite__editor[aria-autocomplete]", (editor) => {
    editor.removeAttribute("aria-autocomplete");
    editor.removeAttribute("aria-expanded");
    editor.setAttribute("role", "textbox");
  });
  each("input[aria-activedescendant]:not([aria-expanded])", (input) => {
    input.setAttribute("aria-expanded", "true");
    name(input, input.placeholder || "Search");
  });
  each('button[role="none"][aria-label]', (button) => button.removeAttribute("role"));
  each("button[aria-controls]", (button) => {
    if (!document.getElementById(button.getAttribute("aria-controls"))) {
      button.removeAttribute("aria-controls");
    }
  });
  each(".show-more[aria-label]", (button) => button.removeAttribute("aria-label")); // it has visible text
  each(".endpoints:not([tabindex]), .cm-scroller[tabindex='-1']", (wide) => {
    wide.tabIndex = 0;
  });
  each("button[class*=copy-button]:not([aria-label])", (button) => name(button, "Copy"));
  each("button:not([aria-label])", (button) => {
    if (!named(button)) {
      name(button, "Unfold");
    }
  });
}

// Tab leaves an editor instead of indenting.
addEventListener("keydown", (event) => {
  if (event.key === "Tab" && event.target.closest?.(".cm-content")) {
    event.stopImmediatePropagation();
  }
}, { capture: true });

async function draw() {
  const contract = await (await fetch("/openapi.json")).json();
  contract.paths = sortOperations(contract.paths);
  clearExamples(contract);
  trimSamples(contract);
  contract.servers = [{ url: location.origin, description: "This service" }];
  const place = document.createElement("div");
  place.id = "scalar";
  list.replaceWith(place);
  new MutationObserver(() => fixAccessibility(document.body)).observe(document.body, { childList: true, subtree: true });
  Scalar.createApiReference(place, {
    content: contract,
    layout: "modern",
    theme: "none",
    withDefaultFonts: false,
    // Links to operations are the same on all installations.
    generateTagSlug: (tag) => tag.name,
    generateOperationSlug: (operation) => operation.operationId,
    showOperationId: true,
    hideModels: true,
    hideSearch: true, // the search of these pages finds operations too
    hideDarkModeToggle: true, // these pages follow the system
    hideClientButton: true,
    hiddenClients: true, // the contract has its own samples
    documentDownloadType: "none",
    showDeveloperTools: "never",
    // Send nothing to other hosts, and store no token.
    telemetry: false,
    persistAuth: false,
    agent: { disabled: true, hideAddApi: true },
    mcp: { disabled: true },
    proxyUrl: "",
    externalUrls: { dashboardUrl: "", registryUrl: "", proxyUrl: "", apiBaseUrl: "" },
    authentication: { preferredSecurityScheme: "bearer", securitySchemes: { bearer: { token } } },
  });
}

draw();
