import { Webhook } from "standardwebhooks";
import type { Event } from "./types.js";

/** A webhook request can't be verified or read. Respond with `status`. */
export class CardmintWebhookError extends Error {
  override readonly name = "CardmintWebhookError";
  /**
   * The status to respond with: 401 if the request can't be verified, 400 or 413 if its payload
   * can't be read.
   */
  readonly status: 400 | 401 | 413;

  /** @internal */
  constructor(message: string, status: 400 | 401 | 413) {
    super(message);
    this.status = status;
  }
}

/** A request's headers, from fetch or from node:http and frameworks built on it. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

export const maxPayload = 64 << 10; // bytes; the service's payloads are smaller than 1 KiB
const minSecret = 24; // bytes, as Standard Webhooks requires

/**
 * Verifies that the service has sent a webhook request, and returns the event. `payload` is the
 * body exactly as it was received. `secret` is the webhook's secret; during a rotation, pass the
 * new and the old one.
 *
 * It throws a CardmintWebhookError if a header is missing, no signature matches, the timestamp is
 * more than five minutes off, or the payload can't be read; and a TypeError if a secret is invalid.
 *
 * An event may be sent more than once, with the same `id`, and events may arrive out of order:
 * `seq` gives their order.
 */
export function verifyWebhook(payload: string | Uint8Array, headers: WebhookHeaders, secret: string | readonly string[]): Event {
  const keys = (typeof secret === "string" ? [secret] : secret).map(key);
  if (keys.length === 0) throw new TypeError("cardmint: the webhook's secret is missing");
  const body = Buffer.from(payload);
  if (body.length > maxPayload) throw new CardmintWebhookError(`the payload is longer than ${maxPayload} bytes`, 413);
  const text = body.toString();
  const signed = {
    "webhook-id": header(headers, "webhook-id"),
    "webhook-timestamp": header(headers, "webhook-timestamp"),
    "webhook-signature": header(headers, "webhook-signature"),
  };
  let failure: unknown;
  for (const webhook of keys) {
    try {
      return event(signed["webhook-id"], webhook.verify(text, signed));
    } catch (err) {
      failure = err;
    }
  }
  if (failure instanceof CardmintWebhookError) throw failure;
  throw new CardmintWebhookError(advice(failure), failure instanceof SyntaxError ? 400 : 401);
}

/** Parses a secret. Empty and short secrets are rejected, because they can be guessed. */
function key(secret: string): Webhook {
  const text = /^(?:whsec_)?((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)$/.exec(secret)?.[1];
  if (text === undefined || Buffer.from(text, "base64").length < minSecret) {
    throw new TypeError(`cardmint: the webhook's secret must be whsec_ and the base64 of at least ${minSecret} bytes, as createWebhook returns it`);
  }
  return new Webhook(secret);
}

function header(headers: WebhookHeaders, name: string): string {
  if (headers instanceof Headers) return headers.get(name) ?? "";
  const found = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return (typeof found === "string" ? found : found?.join(" ")) ?? "";
}

/** Returns the event of a verified payload. It checks only the fields that every event has. */
function event(id: string, payload: unknown): Event {
  const e = payload as Partial<Event> | null;
  const { type, timestamp, seq } = typeof e === "object" && e !== null ? e : {};
  if (typeof type !== "string" || type.length === 0 || typeof timestamp !== "string" || typeof seq !== "number" || seq < 0) {
    throw new CardmintWebhookError("the payload needs a type, a timestamp and a seq", 400);
  }
  return { ...e, id } as Event;
}

/** Explains how to fix a rejected request. The library's own messages may repeat the request. */
function advice(err: unknown): string {
  switch (err instanceof Error ? err.message : "") {
    case "Missing required headers":
      return "a header of webhook-id, webhook-timestamp and webhook-signature is missing: check what stands between the service and here";
    case "Message timestamp too old":
      return "webhook-timestamp is more than five minutes ago: check the clock here, and that nothing keeps requests back";
    case "Message timestamp too new":
      return "webhook-timestamp is more than five minutes ahead: check the clock here";
    case "No matching signature found":
      return "no signature matches: check the secret, and that the body is used as it was received, neither parsed nor changed";
  }
  return "the request can't be read: its timestamp is not a number of seconds, or its payload is not JSON";
}
