import createClient, { type Client } from "openapi-fetch";
import { CardmintConnectionError } from "./errors.js";
import { Feed, type ReadFeed } from "./feed.js";
import { printMasked, printWithoutSecret } from "./redact.js";
import type { operations, paths } from "./schema.gen.js";
import { isTemporary, type RetryOptions, sleep, Transport } from "./transport.js";
import type * as t from "./types.js";
import { waitForCard, type WaitOptions } from "./wait.js";

/** Options of a {@link CardmintClient}. */
export interface ClientOptions {
  /** The service's base URL, without "/api/cards". A trailing "/api" is ignored. */
  baseUrl: string;
  /** The account's API token, without the "Bearer" prefix. */
  token: string;
  /** When calls are retried. */
  retry?: RetryOptions;
  /**
   * The time limit of each attempt, including the response body, in milliseconds. Defaults to 30
   * seconds.
   */
  attemptTimeout?: number;
  /**
   * The first and the longest pause between two polls of waitForCard, in milliseconds. Defaults to
   * 1 and 15 seconds.
   */
  pollInterval?: { first: number; longest: number };
  /** Defaults to "cardmint-typescript". */
  userAgent?: string;
  /** Sends each attempt. Defaults to the global fetch. */
  fetch?: typeof globalThis.fetch;
}

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, which then throws the signal's reason. */
  signal?: AbortSignal;
}

/** Options of calls that change something. */
export interface KeyedOptions extends CallOptions {
  /**
   * Makes the call safe to repeat at any time and from any process: the same request with the same
   * key returns the first response. A key has 1 to 255 visible ASCII characters; an order number is
   * a good key. Defaults to a random key, which all attempts of this call share.
   */
  idempotencyKey?: string;
}

export type CreateCardOptions = KeyedOptions;

export interface ListCardsOptions extends CallOptions, t.CardFilter {
  /** The number of cards per request, from 1 to 1000. Defaults to 500. */
  pageSize?: number;
}

export interface ListEventsOptions extends CallOptions {
  /** Starts after the event with this `seq`. Defaults to 0, the beginning of the feed. */
  after?: number;
}

export interface FollowEventsOptions extends ListEventsOptions {
  /** Only events of the card with this uuid. Defaults to all events of the account. */
  card?: string;
}

export interface ListDeliveriesOptions extends CallOptions {
  /** Only deliveries in this state. Defaults to every state. */
  state?: t.DeliveryState;
}

/**
 * Calls the service on behalf of the account that owns the token. It never prints the token.
 *
 * Calls are retried with exponential backoff and jitter:
 * - after 408 and 429, when the service has not executed the call. Retry-After is respected.
 * - after 502, 503, 504 and a connection that broke or timed out, when the outcome is unknown. All
 *   attempts of a POST carry the same idempotency key, so that the service executes it once.
 *
 * Rejected calls throw a {@link CardmintError}. If there is no valid response, it is a
 * {@link CardmintConnectionError}.
 */
export class CardmintClient {
  /**
   * A typed client for every operation in the contract. Calls are authenticated and retried like
   * the methods, and throw the same errors: their `error` is never set.
   */
  readonly api: Client<paths, "application/json">;
  readonly #poll: { first: number; longest: number };
  readonly #read: ReadFeed;
  readonly #feed: Feed;

  /** Sends no request: an invalid token is reported by the first call. */
  constructor(options: ClientOptions) {
    const { retry = {}, attemptTimeout = 30_000, userAgent = "cardmint-typescript" } = options;
    const { maxAttempts = 4, maxElapsed = 60_000 } = retry;
    if (!isVisible(options.token)) throw new TypeError("cardmint: the token is empty or has an invalid character");
    if (!isVisible(userAgent.replaceAll(" ", ""))) throw new TypeError("cardmint: the user agent must have only visible ASCII characters and spaces");
    if (!(maxAttempts >= 1)) throw new TypeError("cardmint: retry needs at least one attempt");
    if (!(attemptTimeout > 0)) throw new TypeError("cardmint: attemptTimeout needs a duration above zero");
    this.#poll = options.pollInterval ?? { first: 1000, longest: 15_000 };
    if (!(this.#poll.first > 0 && this.#poll.longest >= this.#poll.first)) {
      throw new TypeError("cardmint: pollInterval needs a first interval above zero and a longest that is not shorter");
    }
    const fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
    const transport = new Transport({ token: options.token, userAgent, attemptTimeout, maxAttempts, maxElapsed, fetch });
    this.api = createClient<paths, "application/json">({
      baseUrl: serviceUrl(options.baseUrl),
      fetch: (request) => transport.send(request),
    });
    this.#read = async (card, after, wait, signal) => {
      const res = await this.api.GET("/api/events", {
        params: { query: { after, ...(card !== undefined && { card }), wait } as Query<"listEvents"> },
        fetch: (request) => transport.send(request, attemptTimeout + wait * 1000),
        signal,
      });
      return bodyOf(res) as t.Event[];
    };
    this.#feed = new Feed(this.#read);
  }

  /**
   * Returns a client for the service at CARDMINT_URL with the token CARDMINT_TOKEN. Throws if one
   * of these environment variables is not set.
   */
  static fromEnv(options: Omit<ClientOptions, "baseUrl" | "token"> = {}): CardmintClient {
    const { CARDMINT_URL: baseUrl, CARDMINT_TOKEN: token } = process.env;
    if (!baseUrl) throw new TypeError('cardmint: CARDMINT_URL is not set; it is the service\'s address, like "https://cards.example.com"');
    if (!token) throw new TypeError("cardmint: CARDMINT_TOKEN is not set; it is a token of the account");
    return new CardmintClient({ ...options, baseUrl, token });
  }

  /**
   * Orders a card and returns how to pay for it: send exactly `payment.amount` of
   * `payment.currency` to `payment.address` before `payment.expires_at`. Retries never create a
   * second card.
   */
  async createCard(request: t.CreateCardRequest, options: KeyedOptions = {}): Promise<t.Card> {
    const card = bodyOf(await this.api.POST("/api/cards", { body: request, ...withKey(options, {}) }));
    return printMasked({ ...card, usd_amount: usd(card.usd_amount) });
  }

  /**
   * Returns a card. Throws a CardmintError with code `not_found` if the card does not exist or
   * belongs to another account.
   */
  async getCard(uuid: string, options: CallOptions = {}): Promise<t.Card> {
    return printMasked(bodyOf(await this.api.GET("/api/cards/{uuid}", { params: { path: { uuid } }, ...options })));
  }

  /**
   * Returns a card with unmasked credentials, even where getCard masks them. The service records
   * each call.
   */
  async revealCard(uuid: string, options: KeyedOptions = {}): Promise<t.Card> {
    return printMasked(bodyOf(await this.api.POST("/api/cards/{uuid}/reveal", withKey(options, { path: { uuid } }))));
  }

  /**
   * Cancels a card that holds no money, and returns it. Repeating the call is harmless. Once money
   * has arrived, even unconfirmed, it throws a CardmintError with code `card_has_payments`.
   */
  async cancelCard(uuid: string, options: KeyedOptions = {}): Promise<t.Card> {
    return printMasked(bodyOf(await this.api.POST("/api/cards/{uuid}/cancel", withKey(options, { path: { uuid } }))));
  }

  /**
   * Iterates over the account's cards, newest first, fetching pages as needed. A loop that ends
   * without an error has seen every card.
   */
  listCards(options: ListCardsOptions = {}): AsyncGenerator<t.Card, void, undefined> {
    const { pageSize = 500, signal, ...filter } = options;
    return pages(async (next) => {
      const query = { ...filter, limit: pageSize, ...next } as Query<"listCards">;
      const page = await this.api.GET("/api/cards", { params: { query }, ...signalOnly(signal) });
      page.data?.forEach(printMasked);
      return page;
    });
  }

  /**
   * Iterates over the account's events in order, up to the latest. Store the `seq` of the last
   * event that you have handled and continue after it: then no event is missed, even if webhooks
   * fail.
   */
  listEvents(options: ListEventsOptions = {}): AsyncGenerator<t.Event, void, undefined> {
    const { after = 0, signal } = options;
    return pages<t.Event>(async (next) => {
      const query = { after, limit: 1000, ...next } as Query<"listEvents">;
      const { data, response } = await this.api.GET("/api/events", { params: { query }, ...signalOnly(signal) });
      return { data: data as t.Event[], response };
    });
  }

  /**
   * Iterates over the account's events in order and waits for new ones; the loop does not end on
   * its own. Store the `seq` of the last event that you have handled, and continue after it at the
   * next start.
   *
   * It throws the reason of `signal` if that is aborted, and a CardmintError if the service rejects
   * the request, for example because the token was revoked. Temporary failures are retried.
   */
  async *followEvents(options: FollowEventsOptions = {}): AsyncGenerator<t.Event, never, undefined> {
    const { card, signal = new AbortController().signal } = options;
    let { after = 0 } = options;
    for (let pause = this.#poll.first; ; ) {
      signal.throwIfAborted();
      let events: t.Event[] = [];
      const start = Date.now();
      try {
        events = await this.#read(card, after, longPoll, signal);
      } catch (err) {
        signal.throwIfAborted();
        if (!isTemporary(err)) throw err;
      }
      for (const event of events) {
        yield event;
        after = event.seq;
      }
      if (events.length > 0) pause = this.#poll.first;
      else if (Date.now() - start < (longPoll * 1000) / 2) {
        // The request failed, or the service is shutting down and does not wait.
        await sleep(pause * (0.5 + Math.random() / 2), signal);
        pause = Math.min(pause * 1.5, this.#poll.longest);
      }
    }
  }

  /**
   * Waits until a card is generated, and returns it with its credentials. It polls the card; with a
   * service that supports long polling, it also reads the card after each event. A payment takes as
   * long as the blockchain does, often half an hour.
   *
   * It throws a CardmintPaymentError if waiting longer is pointless, a CardmintTimeoutError after
   * `timeout`, the reason of `signal` if that is aborted, and other errors of getCard. Once the
   * card has been read, temporary failures do not end the wait.
   */
  waitForCard(uuid: string, options: WaitOptions = {}): Promise<t.IssuedCard> {
    return waitForCard(this, this.#feed, this.#poll, uuid, options);
  }

  /** Lists the cryptocurrencies that a card can be paid with, and their current rates. */
  async listCurrencies(options: CallOptions = {}): Promise<t.Currency[]> {
    return bodyOf(await this.api.GET("/api/currencies", { ...options }));
  }

  /**
   * Lists the amounts that cards can be ordered for, ascending. The list may be some seconds old.
   */
  async listOffers(options: CallOptions = {}): Promise<t.Offer[]> {
    return bodyOf(await this.api.GET("/api/offers", { ...options }));
  }

  /** Pays for a card with simulated money; by default the amount due, confirmed. Sandbox only. */
  async simulatePayment(uuid: string, request: t.SimulatePaymentRequest = {}, options: KeyedOptions = {}): Promise<t.Card> {
    const path = "/api/sandbox/cards/{uuid}/payments";
    return printMasked(bodyOf(await this.api.POST(path, { body: request, ...withKey(options, { path: { uuid } }) })));
  }

  /**
   * Registers a URL that the service sends events to. The secret is returned only once;
   * {@link verifyWebhook} needs it.
   */
  async createWebhook(request: t.CreateWebhookRequest, options: KeyedOptions = {}): Promise<t.WebhookWithSecret> {
    return printWithoutSecret(bodyOf(await this.api.POST("/api/webhooks", { body: request, ...withKey(options, {}) })));
  }

  /** Lists the account's webhooks, oldest first. */
  async listWebhooks(options: CallOptions = {}): Promise<t.Webhook[]> {
    return bodyOf(await this.api.GET("/api/webhooks", { ...options }));
  }

  async getWebhook(id: string, options: CallOptions = {}): Promise<t.Webhook> {
    return bodyOf(await this.api.GET("/api/webhooks/{webhook_id}", { ...webhook(id), ...options }));
  }

  /** Changes the fields that are present in the request. */
  async updateWebhook(id: string, request: t.UpdateWebhookRequest, options: CallOptions = {}): Promise<t.Webhook> {
    return bodyOf(await this.api.PATCH("/api/webhooks/{webhook_id}", { ...webhook(id), body: request, ...options }));
  }

  /** Deletes a webhook and its deliveries. */
  async deleteWebhook(id: string, options: CallOptions = {}): Promise<void> {
    await this.api.DELETE("/api/webhooks/{webhook_id}", { ...webhook(id), ...options });
  }

  /**
   * Replaces a webhook's secret. For 24 hours, requests are signed with both the new and the old
   * one.
   */
  async rotateWebhookSecret(id: string, options: KeyedOptions = {}): Promise<t.WebhookWithSecret> {
    return printWithoutSecret(bodyOf(await this.api.POST("/api/webhooks/{webhook_id}/rotate-secret", withKey(options, webhook(id).params))));
  }

  /**
   * Sends an example event to a webhook, once, and returns the result. The event's `seq` is 0, and
   * its card does not exist.
   */
  async testWebhook(id: string, request: t.TestWebhookRequest = {}, options: KeyedOptions = {}): Promise<t.DeliveryAttempt> {
    return bodyOf(await this.api.POST("/api/webhooks/{webhook_id}/test", { body: request, ...withKey(options, webhook(id).params) }));
  }

  /** Iterates over a webhook's deliveries, sent and pending, newest event first. */
  listDeliveries(id: string, options: ListDeliveriesOptions = {}): AsyncGenerator<t.Delivery, void, undefined> {
    const { signal, ...filter } = options;
    return pages(async (next) => {
      const query = { ...filter, limit: 100, ...next } as Query<"listDeliveries">;
      const params = { ...webhook(id).params, query };
      return this.api.GET("/api/webhooks/{webhook_id}/deliveries", { params, ...signalOnly(signal) });
    });
  }

  /** Sends an event again as soon as possible, whatever the state of its delivery. */
  async redeliver(id: string, event: string, options: KeyedOptions = {}): Promise<void> {
    const path = { webhook_id: id, event_id: event };
    await this.api.POST("/api/webhooks/{webhook_id}/deliveries/{event_id}/redeliver", withKey(options, { path }));
  }

  /** Schedules all events since `since` that the webhook has missed, and returns their number. */
  async recoverWebhook(id: string, since: Date, options: KeyedOptions = {}): Promise<t.Recovery> {
    const params = { ...webhook(id).params, query: { since: since.toISOString() } };
    return bodyOf(await this.api.POST("/api/webhooks/{webhook_id}/recover", withKey(options, params)));
  }
}

const longPoll = 30; // seconds

type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

const webhook = (id: string) => ({ params: { path: { webhook_id: id } } });

/**
 * Returns the parameters and options of a call that changes something, with the caller's
 * idempotency key or a random one.
 */
function withKey<Params extends object>(options: KeyedOptions, params: Params) {
  const { idempotencyKey = crypto.randomUUID(), ...call } = options;
  if (!isVisible(idempotencyKey) || idempotencyKey.length > 255) {
    throw new TypeError("cardmint: an idempotency key needs 1 to 255 visible ASCII characters");
  }
  return { params: { ...params, header: { "Idempotency-Key": idempotencyKey } }, ...call };
}

const signalOnly = (signal: AbortSignal | undefined): CallOptions => (signal ? { signal } : {});

/** Reports whether s can be sent in a header as one word. */
function isVisible(s: string): boolean {
  return /^[!-~]+$/.test(s);
}

function serviceUrl(text: string): string {
  // Errors do not repeat the text, because it may contain a password.
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new TypeError('cardmint: the base URL must have a scheme and a host, like "https://cards.example.com"');
  }
  if (url.username || url.password || url.search || url.hash) {
    throw new TypeError("cardmint: the base URL must not have a user, a query or a fragment");
  }
  return url.origin + url.pathname.replace(/\/+$/, "").replace(/\/api$/, "").replace(/\/+$/, "");
}

/** Returns the body of a response that must have one. */
function bodyOf<T>(res: { data?: T }): T {
  if (res.data === undefined || res.data === null) throw new CardmintConnectionError("the response is empty");
  return res.data;
}

/**
 * Formats the only amount that the service sends as a number. Nothing is lost: a dollar amount with
 * two decimals has far fewer digits than a number can hold.
 */
function usd(amount: number): string {
  return Number.isInteger(amount) ? String(amount) : amount.toFixed(2);
}

/** Iterates over a list. `read` fetches a page, given the query parameters that select it. */
async function* pages<T>(
  read: (next: Record<string, string>) => Promise<{ data?: T[]; response: Response }>,
): AsyncGenerator<T, void, undefined> {
  for (let next: Record<string, string> | undefined = {}, before = ""; next !== undefined; ) {
    const page = await read(next);
    yield* bodyOf(page);
    next = nextPage(page.response);
    const now = JSON.stringify(next);
    if (next !== undefined && now === before) throw new CardmintConnectionError("the next page is the same page");
    before = now;
  }
}

/**
 * Returns the query of the next page, or undefined after the last page. The link's host and path
 * are ignored, so that the token is not sent elsewhere.
 */
function nextPage(res: Response): Record<string, string> | undefined {
  const link = /<([^<>]*)>[^<>]*;\s*rel="?next"?\s*(?:[;,]|$)/i.exec(res.headers.get("Link") ?? "");
  if (link === null) return undefined;
  const query = link[1]?.split("#")[0]?.split("?")[1];
  if (!query) throw new CardmintConnectionError("the link to the next page can't be read");
  return Object.fromEntries(new URLSearchParams(query));
}
