import type { IncomingMessage, ServerResponse } from "node:http";
import type { Event } from "./types.js";
import { CardmintWebhookError, longestPayload, verifyWebhook, type WebhookHeaders } from "./webhook.js";

/** Handles an event. If it throws, the service sends the event again, first after 5 seconds and up to ten times over three days. */
export type HandleEvent = (event: Event) => void | Promise<void>;

export interface WebhookHandlerOptions {
  /**
   * Is called for each rejected request, with a CardmintWebhookError, which any program on the internet can cause, or with what the
   * handler has thrown. Defaults to console.warn.
   */
  onError?: (error: unknown) => void;
}

const remembered = 10_000; // events

/**
 * Returns a handler of requests to a webhook, for all that calls a function with a Request: Hono, Next.js, Deno, Bun and others. It
 * takes the webhook's secret; while the secret is being changed, the new one and the old one.
 *
 * `handle` is called with each event that the service sends. An event that comes twice is handled once by this process, unless `handle`
 * has thrown; other processes do not know of it, and events may come in another order than they happened, so `handle` should be
 * idempotent. After 15 seconds the service gives up the attempt: store longer work, and do it afterwards.
 *
 * The response is 204 for a handled event, 405 if the method is not POST, 401 if the signature is not right, 400 for a payload that
 * can't be read, 413 for one of more than 64 KiB, and 500, without the error's text, if `handle` throws.
 */
export function webhookHandler(secret: string | readonly string[], handle: HandleEvent, options: WebhookHandlerOptions = {}): (request: Request) => Promise<Response> {
  const receive = receiver(secret, handle, options);
  return async (request) => {
    const { status, text } = await receive(request.method, request.headers, () => readStream(request.body ?? []));
    return new Response(text, { status, headers: { ...(status === 405 && { Allow: "POST" }) } });
  };
}

/**
 * Is webhookHandler for node:http and for what stands on it, such as Express: `app.post("/hooks", nodeWebhookHandler(...))`. The body
 * must not be parsed before, because the signature is that of its bytes: mount it before `express.json()`, or after `express.raw()`.
 */
export function nodeWebhookHandler(secret: string | readonly string[], handle: HandleEvent, options: WebhookHandlerOptions = {}): (req: IncomingMessage, res: ServerResponse) => Promise<void> {
  const receive = receiver(secret, handle, options);
  return async (req, res) => {
    const { body } = req as { body?: unknown };
    const { status, text } = await receive(req.method ?? "", req.headers, async () => {
      if (typeof body === "string" || body instanceof Uint8Array) return Buffer.from(body);
      if (req.readableEnded) throw new TypeError("cardmint: the webhook's body was parsed before: mount its handler before express.json()");
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

/** Throws a TypeError now, not at the first event, if a secret can't be used. */
function verifySecret(secret: string | readonly string[]): void {
  try {
    verifyWebhook("", {}, secret);
  } catch (err) {
    if (!(err instanceof CardmintWebhookError)) throw err;
  }
}

/** Calls a function once for each id. A second call waits for the first, and does its work if that failed. */
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
      if (done.size > remembered) for (const oldest of done) return void done.delete(oldest);
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
    if (length > longestPayload) throw new CardmintWebhookError(`the payload is longer than ${longestPayload} bytes`, 413);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function warn(error: unknown): void {
  console.warn("cardmint: webhook request not accepted:", error);
}
