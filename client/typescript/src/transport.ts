import { CardmintConnectionError, CardmintError, mediaType, responseError } from "./errors.js";

/** When and how often calls are retried. */
export interface RetryOptions {
  /** The maximum number of attempts, including the first. Defaults to 4; 1 disables retries. */
  maxAttempts?: number;
  /**
   * How long after the start of a call another attempt may start, in milliseconds. Defaults to one
   * minute.
   */
  maxElapsed?: number;
}

export interface TransportOptions extends Required<RetryOptions> {
  token: string;
  userAgent: string;
  attemptTimeout: number;
  fetch: typeof globalThis.fetch;
}

const firstBackoff = 500;
const maxBackoff = 10_000;

/**
 * Sends requests, and retries them where that is safe. A response other than 2xx is thrown as a
 * {@link CardmintError}, so that callers only see responses that can be decoded. The token is added
 * here, and kept out of everything that is thrown.
 */
export class Transport {
  readonly #options: TransportOptions;

  constructor(options: TransportOptions) {
    this.#options = options;
  }

  /** Implements the part of the signature of fetch that openapi-fetch uses. */
  async send(request: Request, attemptTimeout = this.#options.attemptTimeout): Promise<Response> {
    const { maxAttempts, maxElapsed } = this.#options;
    const { method, signal } = request;
    const body = request.body === null ? undefined : await request.text();
    // All attempts carry one key, so that the service executes the request once.
    if (method === "POST" && !request.headers.has("Idempotency-Key")) request.headers.set("Idempotency-Key", crypto.randomUUID());
    const start = Date.now();
    let maybeDone = false; // whether an earlier attempt may have been executed
    for (let n = 1; ; n++) {
      signal.throwIfAborted();
      try {
        return await this.#attempt(request, body, attemptTimeout);
      } catch (err) {
        signal.throwIfAborted();
        const rejected = err instanceof CardmintError;
        if (method === "DELETE" && maybeDone && rejected && err.code === "not_found") {
          return new Response(null, { status: 204 }); // an earlier attempt deleted it
        }
        // Backoff is added to Retry-After, so that clients do not all return at once.
        const wait = backoff(n) + (rejected ? err.retryAfter : 0);
        if (n >= maxAttempts || !isTemporary(err) || Date.now() - start + wait > maxElapsed) throw err;
        maybeDone ||= !rejected || err.status >= 500;
        await sleep(wait, signal);
      }
    }
  }

  /** Sends a request once, and reads the whole response. */
  async #attempt(request: Request, body: string | undefined, timeout: number): Promise<Response> {
    const headers = new Headers(request.headers);
    headers.set("Authorization", `Bearer ${this.#options.token}`);
    headers.set("Accept", "application/json, application/problem+json");
    headers.set("User-Agent", this.#options.userAgent);
    const controller = new AbortController();
    const end = (): void => controller.abort(request.signal.reason);
    request.signal.addEventListener("abort", end, { once: true });
    const timer = setTimeout(() => controller.abort(new Error(`no answer within ${timeout} ms`)), timeout);
    try {
      const { fetch } = this.#options;
      const res = await fetch(request.url, {
        method: request.method,
        headers,
        signal: controller.signal,
        redirect: "manual", // following one would send the token to its target
        ...(body === undefined ? {} : { body }),
      });
      return readResponse(res, await res.text());
    } catch (err) {
      if (err instanceof CardmintError || err instanceof CardmintConnectionError) throw err;
      const cause = controller.signal.aborted ? (controller.signal.reason as unknown) : err;
      throw new BrokenError(`${request.method} ${new URL(request.url).pathname}: ${reason(cause)}`, { cause });
    } finally {
      clearTimeout(timer);
      request.signal.removeEventListener("abort", end);
    }
  }
}

/** The connection broke before the whole response arrived. The request may have been executed. */
class BrokenError extends CardmintConnectionError {}

/**
 * Rejects responses that can't be the service's. Parser errors are not passed on, because they
 * quote the text, which may contain credentials.
 */
function readResponse(res: Response, body: string): Response {
  if (!res.ok) throw responseError(res, body);
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

/** Reports whether the same request may succeed later. */
export function isTemporary(err: unknown): boolean {
  if (err instanceof CardmintError) return [408, 429, 502, 503, 504].includes(err.status);
  return err instanceof BrokenError && !isCertificateError(err.cause);
}

/** Reports whether the server's certificate was rejected, which a retry does not fix. */
function isCertificateError(err: unknown): boolean {
  return /CERT|SELF_SIGNED|UNABLE_TO_VERIFY/.test(errorCode(err));
}

/** Returns the system or OpenSSL code of an error of fetch, which is in one of its causes. */
function errorCode(err: unknown): string {
  for (let e = err; e instanceof Error; e = e.cause) {
    if ("code" in e && typeof e.code === "string") return e.code;
  }
  return "";
}

function reason(err: unknown): string {
  return [err instanceof Error ? err.message : String(err), errorCode(err)].filter((s) => s !== "").join(": ");
}

/** Returns how long to wait after attempt n, in milliseconds: exponential, with full jitter. */
function backoff(n: number): number {
  return Math.random() * Math.min(maxBackoff, firstBackoff * 2 ** (n - 1));
}

/** Pauses. If the signal is aborted, it throws the signal's reason at once. */
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
