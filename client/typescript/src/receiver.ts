import type { IncomingMessage, ServerResponse } from "node:http";
import type { Event } from "./types.js";
import { CardmintWebhookError, maxPayload, verifyWebhook, type WebhookHeaders } from "./webhook.js";

/** Handles an event. If it throws, the service sends the event again, first after 5 seconds and up to ten times over three days. */
export type HandleEvent = (event: Event) => void | Promise<void>;

export interface WebhookHandlerOptions {
  /**
   * Called for each rejected request, with a CardmintWebhookError, which any program on the
   * internet can cause, or with the error that the handler threw. Defaults to console.warn.
   */
  onError?: (error: unknown) => void;
}

const maxRemembered = 10_000; // events

/**
 * Returns a webhook handler for everything that passes a Request and expects a Response: Hono,
 * Next.js, Deno, Bun and others. `secret` is the webhook's secret; during a rotation, pass the new
 * and the old one.
 *
 * `handle` is called with each event. Within this process, an event that is sent twice is handled
 * once, unless `handle` threw. Other processes do not know about it, and events may arrive out of
 * order, so `handle` should be idempotent. The service aborts the attempt after 15 seconds: store
 * longer work, and do it afterwards.
 *
 * The response is 204 for a handled event, 405 if the method is not POST, 401 if the signature is
 * invalid, 400 if the payload can't be read, 413 if it is larger than 64 KiB, and 500, without the
 * error's text, if `handle` throws.
 */
export function webhookHandler(secret: string | readonly string[], handle: HandleEvent, options: WebhookHandlerOptions = {}): (request: Request) => Promise<Response> {
  const receive = receiver(secret, handle, options);
  return async (request) => {
    const { status, text } = await receive(request.method, request.headers, () => readStream(request.body ?? []));
    return new Response(text, { status, headers: { ...(status === 405 && { Allow: "POST" }) } });
  };
}

/**
 * Like {@link webhookHandler}, but for node:http and frameworks built on it, such as Express:
 * `app.post("/hooks", nodeWebhookHandler(...))`. The body must not have been parsed, because its
 * raw bytes are signed: mount the handler before `express.json()`, or after `express.raw()`.
 */
export function nodeWebhookHandler(secret: string | readonly string[], handle: HandleEvent, options: WebhookHandlerOptions = {}): (req: IncomingMessage, res: ServerResponse) => Promise<void> {
  const receive = receiver(secret, handle, options);
  return async (req, res) => {
    const { body } = req as { body?: unknown };
    const { status, text } = await receive(req.method ?? "", req.headers, async () => {
      if (typeof body === "string" || body instanceof Uint8Array) return Buffer.from(body);
      if (req.readableEnded) throw new TypeError("cardmint: the webhook's body was already parsed: mount the handler before express.json()");
      return readStream(req);
    });
    if (status === 405) res.setHeader("Allow", "POST");
    res.writeHead(status).end(text ?? undefined);
  };
}

type Received = { status: number; text: string | null };

function receiver(secret: string | readonly string[], handle: HandleEvent, { onError = warn }: WebhookHandlerOptions) {
  verifySecret(secret);
  const once = deduplicator();
  return async (method: string, headers: WebhookHeaders, read: () => Promise<Buffer>): Promise<Received> => {
    if (method !== "POST") return { status: 405, text: "webhooks are sent by POST" };
    let event: Event;
    try {
      event = verifyWebhook(await read(), headers, secret);
    } catch (err) {
      onError(err);
      if (err instanceof CardmintWebhookError) return { status: err.status, text: err.message };
      return { status: 500, text: "the request could not be read" };
    }
    try {
      await once(event.id, async () => handle(event));
      return { status: 204, text: null };
    } catch (err) {
      onError(err);
      return { status: 500, text: "the event was not handled" };
    }
  };
}

/** Throws a TypeError if a secret is invalid, before the first event arrives. */
function verifySecret(secret: string | readonly string[]): void {
  try {
    verifyWebhook("", {}, secret);
  } catch (err) {
    if (!(err instanceof CardmintWebhookError)) throw err;
  }
}

/**
 * Runs the work of each id once. A concurrent call for the same id waits for the first, and runs
 * its own work if that failed.
 */
function deduplicator() {
  const done = new Set<string>();
  const running = new Map<string, Promise<void>>();
  return async (id: string, work: () => Promise<void>): Promise<void> => {
    for (let first = running.get(id); first !== undefined; first = running.get(id)) await first.catch(() => undefined);
    if (done.has(id)) return;
    const call = work();
    running.set(id, call);
    try {
      await call;
      done.add(id);
      if (done.size > maxRemembered) for (const oldest of done) return void done.delete(oldest);
    } finally {
      running.delete(id);
    }
  };
}

async function readStream(stream: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of stream) {
    length += chunk.length;
    if (length > maxPayload) throw new CardmintWebhookError(`the payload is longer than ${maxPayload} bytes`, 413);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function warn(error: unknown): void {
  console.warn("cardmint: webhook request not accepted:", error);
}
