import type { Card, WebhookWithSecret } from "./types.js";

/**
 * Makes an object print itself as `view` returns it: with util.inspect, console.log and JSON.stringify. Its properties stay as they
 * are, and so do copies: `{ ...object }` prints everything.
 */
function printAs<T extends object>(object: T, view: (object: T) => unknown): T {
  const method = { value: () => view(object), enumerable: false };
  return Object.defineProperties(object, { toJSON: method, [Symbol.for("nodejs.util.inspect.custom")]: method });
}

/** Masks a card's credentials in print, as the service masks them for tokens that may not read them. */
export function printMasked(card: Card): Card {
  // An object that is not the service's may lack them.
  if (typeof card?.credentials !== "object" || card.credentials === null) return card;
  printAs(card.credentials, ({ card_number, security_code, url_password, ...rest }) => ({
    card_number: card_number && "*".repeat(Math.max(card_number.length - 4, 0)) + card_number.slice(-4),
    security_code: security_code && "***",
    url_password: url_password && "***",
    ...rest,
  }));
  return card;
}

/** Hides a webhook's secret in print. */
export function printWithoutSecret(created: WebhookWithSecret): WebhookWithSecret {
  return printAs(created, ({ secret, ...rest }) => ({ ...rest, secret: secret && "whsec_***" }));
}
