import type { Card, WebhookWithSecret } from "./types.js";

/**
 * Makes util.inspect, console.log and JSON.stringify print an object as `view` returns it. Its
 * properties are unchanged, and copies such as `{ ...object }` print everything.
 */
function printAs<T extends object>(object: T, view: (object: T) => unknown): T {
  const method = { value: () => view(object), enumerable: false };
  return Object.defineProperties(object, { toJSON: method, [Symbol.for("nodejs.util.inspect.custom")]: method });
}

/** Masks a card's credentials in output, as the service does for tokens that may not read them. */
export function printMasked(card: Card): Card {
  // A response that is not the service's may lack credentials.
  if (typeof card?.credentials !== "object" || card.credentials === null) return card;
  printAs(card.credentials, ({ card_number, security_code, url_password, ...rest }) => ({
    card_number: card_number && "*".repeat(Math.max(card_number.length - 4, 0)) + card_number.slice(-4),
    security_code: security_code && "***",
    url_password: url_password && "***",
    ...rest,
  }));
  return card;
}

/** Hides a webhook's secret in output. */
export function printWithoutSecret(created: WebhookWithSecret): WebhookWithSecret {
  return printAs(created, ({ secret, ...rest }) => ({ ...rest, secret: secret && "whsec_***" }));
}
