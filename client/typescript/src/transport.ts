import { CardmintConnectionError, CardmintError, mediaType, refusal } from "./errors.js";

/** How often a call is attempted. */
export interface RetryOptions {
  /** The most attempts, the first included. Defaults to 4; 1 attempts every call once. */
  maxAttempts?: number;
  /** How long after the call's beginning another attempt may still start, in milliseconds. Defaults to a minute. */
  maxElapsed?: number;
}

export interface TransportOptions extends Required<RetryOptions> {
  token: string;
  userAgent: string;
  attemptTimeout: number;
  fetch: typeof globalThis.fetch;
}

const firstBackoff = 500;
const longestBackoff = 10_000;

/**
 * Sends requests, more than once where that is safe. An answer that is not 2xx is thrown as a {@link CardmintError}, so that whoever
 * calls sees answers only that can be decoded. The token is added here, and kept out of everything that is thrown.
 */
export class Transport {
  readonly #options: TransportOptions;

  constructor(options: TransportOptions) {
    this.#options = options;
  }

  /** Has the signature of fetch, as far as openapi-fetch uses it. */
  async send(request: Request, attemptTimeout = this.#options.attemptTimeout): Promise<Response> {
    const { maxAttempts, maxElapsed } = this.#options;
    const { method, signal } = request;
    const body = request.body === null ? undefined : await request.text();
    // All attempts carry one key, by which the service does it once.
    if (method === "POST" && !request.headers.has("Idempotency-Key")) request.headers.set("Idempotency-Key", crypto.randomUUID());
    const start = Date.now();
    let unclear = false; // whether an attempt may have done it without our knowing
    for (let n = 1; ; n++) {
      signal.throwIfAborted();
      try {
        return await this.#attempt(request, body, attemptTimeout);
      } catch (err) {
        signal.throwIfAborted();
        const refused = err instanceof CardmintError;
        if (method === "DELETE" && unclear && refused && err.code === "not_found") {
          return new Response(null, { status: 204 }); // an attempt before this one has deleted it
        }
        // Jitter on top, so that not everybody comes back at once.
        const wait = backoff(n) + (refused ? err.retryAfter : 0);
        if (n >= maxAttempts || !temporary(err) || Date.now() - start + wait > maxElapsed) throw err;
        unclear ||= !refused || err.status >= 500;
        await sleep(wait, signal);
      }
    }
  }

  /** Sends a request once, and waits for the whole answer. */
  async #attempt(request: Request, body: string | undefined, timeout: number): Promise<Response> {
    const headers = new Headers(request.headers);
    headers.set("Authorization", `Bearer ${this.#options.token}`);
    headers.set("Accept", "application/json, application/problem+json");
    headers.set("User-Agent", this.#options.userAgent);
    const ending = new AbortController();
    const end = (): void => ending.abort(request.signal.reason);
    request.signal.addEventListener("abort", end, { once: true });
    const timer = setTimeout(() => ending.abort(new Error(`no answer within ${timeout} ms`)), timeout);
    try {
      const { fetch } = this.#options;
      const res = await fetch(request.url, {
        method: request.method,
        headers,
        signal: ending.signal,
        redirect: "manual", // a redirect would take the token to wherever it points
        ...(body === undefined ? {} : { body }),
      });
      return readAnswer(res, await res.text());
    } catch (err) {
      if (err instanceof CardmintError || err instanceof CardmintConnectionError) throw err;
      const cause = ending.signal.aborted ? (ending.signal.reason as unknown) : err;
      throw new BrokenError(`${request.method} ${new URL(request.url).pathname}: ${reason(cause)}`, { cause });
    } finally {
      clearTimeout(timer);
      request.signal.removeEventListener("abort", end);
    }
  }
}

/** A connection that broke before the whole answer was there. What was asked for may have been done, or not. */
class BrokenError extends CardmintConnectionError {}

/** Refuses answers that can't be the service's. Parser errors are not passed on: they quote the text, which may hold credentials. */
function readAnswer(res: Response, body: string): Response {
  if (!res.ok) throw refusal(res, body);
  if (body !== "") {
    const kind = mediaType(res);
    if (kind !== "application/json") {
      throw new CardmintConnectionError(`the response is ${kind}, not JSON; is this the service's base URL?`);
    }
    try {
      JSON.parse(body);
    } catch {
      throw new CardmintConnectionError("the response is not valid JSON");
    }
  }
  const { status, statusText } = res;
  return new Response(body === "" ? null : body, { status, statusText, headers: res.headers });
}

/** Whether the same request may well succeed later. */
export function temporary(err: unknown): boolean {
  if (err instanceof CardmintError) return [408, 429, 502, 503, 504].includes(err.status);
  return err instanceof BrokenError && !untrusted(err.cause);
}

/** Whether a server could not prove who it is. That does not pass. */
function untrusted(err: unknown): boolean {
  return /CERT|SELF_SIGNED|UNABLE_TO_VERIFY/.test(code(err));
}

/** The system's or OpenSSL's code of an error of fetch, which keeps it in its cause. */
function code(err: unknown): string {
  for (let e = err; e instanceof Error; e = e.cause) {
    if ("code" in e && typeof e.code === "string") return e.code;
  }
  return "";
}

function reason(err: unknown): string {
  return [err instanceof Error ? err.message : String(err), code(err)].filter((s) => s !== "").join(": ");
}

/** How long to wait after attempt n, in milliseconds: exponential, with full jitter. */
function backoff(n: number): number {
  return Math.random() * Math.min(longestBackoff, firstBackoff * 2 ** (n - 1));
}

/** Pauses; throws the signal's reason as soon as it is aborted. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const end = (): void => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", end);
      resolve();
    }, ms);
    signal.addEventListener("abort", end, { once: true });
  });
}
