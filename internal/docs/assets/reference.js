// Shows the contract of this very service. The token is in the page only where the service runs for development on the reader's own machine.
"use strict";

const token = document.querySelector('meta[name="cardmint-token"]')?.content;
const place = document.getElementById("reference");

// Some of Swagger UI's controls have no name, or react to the mouse alone.
function mend() {
  for (const tab of place.querySelectorAll(".tab-item:not([tabindex])")) {
    tab.tabIndex = 0;
    tab.setAttribute("role", "button");
    tab.addEventListener("keydown", (e) => {
      if (e.key === "Enter" || e.key === " ") {
        e.preventDefault();
        tab.click();
      }
    });
  }
  for (const control of place.querySelectorAll("input:not([aria-label]), select:not([aria-label]), textarea:not([aria-label])")) {
    const row = control.closest("tr[data-param-name]");
    const name = row ? row.dataset.paramName : control.closest(".body-param") ? "Request body" : control.placeholder || control.name;
    control.setAttribute("aria-label", name || "Value");
  }
  for (const button of place.querySelectorAll("button:not([aria-label])")) {
    if (button.textContent.trim() === "") {
      button.setAttribute("aria-label", button.closest(".copy-to-clipboard") ? "Copy" : button.title || "Unfold");
    }
  }
  for (const wide of place.querySelectorAll("pre:not([tabindex]), .table-container:not([tabindex]), .model-box:not([tabindex])")) {
    wide.tabIndex = 0;
  }
}

// An operation is unfolded by a button; a link within it could not be reached.
const withoutLinks = (system) => ({
  components: { DeepLink: ({ text }) => system.React.createElement("span", null, text) },
});

// Examples are filled into the forms, and would be sent: keep those of what has to be sent.
function keepFormsEmpty(contract) {
  for (const item of Object.values(contract.paths)) {
    for (const operation of Object.values(item)) {
      for (const parameter of operation.parameters ?? []) {
        if (parameter.example !== undefined && !parameter.required) {
          parameter.description += "\n\nExample: `" + parameter.example + "`";
          delete parameter.example;
        }
      }
    }
  }
}

async function show() {
  const contract = await (await fetch("/openapi.json")).json();
  keepFormsEmpty(contract);
  contract.servers = [{ url: location.origin, description: "This service" }];
  new MutationObserver(mend).observe(place, { childList: true, subtree: true });
  const ui = SwaggerUIBundle({
    spec: contract,
    domNode: place,
    presets: [SwaggerUIBundle.presets.apis],
    plugins: [withoutLinks],
    layout: "BaseLayout",
    deepLinking: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: 0,
    syntaxHighlight: { activated: false },
    validatorUrl: null,
  });
  if (token) {
    ui.preauthorizeApiKey("bearer", token);
  }
}

show();
