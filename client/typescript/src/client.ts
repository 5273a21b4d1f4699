import createClient, { type Client } from "openapi-fetch";
import { CardmintConnectionError } from "./errors.js";
import { Feed, type ReadFeed } from "./feed.js";
import { printMasked, printWithoutSecret } from "./redact.js";
import type { operations, paths } from "./schema.gen.js";
import { type RetryOptions, sleep, temporary, Transport } from "./transport.js";
import type * as t from "./types.js";
import { waitForCard, type WaitOptions } from "./wait.js";

/** What a {@link CardmintClient} needs, and what it does by default. */
export interface ClientOptions {
  /** Where the service is: what comes before "/api/cards". An "/api" at the end does no harm. */
  baseUrl: string;
  /** The account's API token, without "Bearer". */
  token: string;
  /** When calls are repeated. */
  retry?: RetryOptions;
  /** Limits each attempt of a call, to the last byte of the response, in milliseconds. Defaults to 30 seconds. */
  attemptTimeout?: number;
  /** The pause after which waitForCard looks for the first time again, and the one that it grows to, in milliseconds. Defaults to 1 and 15 seconds. */
  pollInterval?: { first: number; longest: number };
  /** Defaults to "cardmint-typescript". */
  userAgent?: string;
  /** Sends an attempt. Defaults to the global fetch. */
  fetch?: typeof globalThis.fetch;
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call, which then throws the signal's reason. */
  signal?: AbortSignal;
}

/** What every call takes that does something. */
export interface KeyedOptions extends CallOptions {
  /**
   * Makes the call safe to repeat at any time and from any process: the same key with the same request answers the first answer
   * again. It has 1 to 255 visible ASCII characters; an order number is a good key. Defaults to a random one, which all attempts
   * of this call carry.
   */
  idempotencyKey?: string;
}

export type CreateCardOptions = KeyedOptions;

export interface ListCardsOptions extends CallOptions, t.CardFilter {
  /** The most cards that one request fetches, 1 to 1000. Defaults to 500. */
  pageSize?: number;
}

export interface ListEventsOptions extends CallOptions {
  /** Starts after the event with this `seq`. Defaults to 0: all events. */
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
 * Calls the service on behalf of the account that its token belongs to. It never shows its token.
 *
 * A call is repeated by itself, with a wait that grows and is random:
 * - after 408 and 429, when the service has done nothing yet. A Retry-After is waited for.
 * - after 502, 503, 504 and a connection that broke or timed out, when nobody knows what the service has done. All attempts of a call
 *   that does something carry one random idempotency key, by which the service does it once.
 *
 * Refusals are thrown as {@link CardmintError}; if no answer comes, it is a {@link CardmintConnectionError}.
 */
export class CardmintClient {
  /**
   * Every operation of the contract, typed, for those that have no method here. Calls are authenticated and repeated like all others,
   * and throw like them: their `error` is never set.
   */
  readonly api: Client<paths, "application/json">;
  readonly #poll: { first: number; longest: number };
  readonly #read: ReadFeed;
  readonly #feed: Feed;

  /** Sends nothing: whether the token is good shows in the first call. */
  constructor(options: ClientOptions) {
    const { retry = {}, attemptTimeout = 30_000, userAgent = "cardmint-typescript" } = options;
    const { maxAttempts = 4, maxElapsed = 60_000 } = retry;
    if (!visible(options.token)) throw new TypeError("cardmint: the token is empty, or has a character that no token has");
    if (!visible(userAgent.replaceAll(" ", ""))) throw new TypeError("cardmint: the user agent needs visible ASCII characters");
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
      return answer(res) as t.Event[];
    };
    this.#feed = new Feed(this.#read);
  }

  /** Returns a client of the service at CARDMINT_URL with the token CARDMINT_TOKEN. Both environment variables must be set. */
  static fromEnv(options: Omit<ClientOptions, "baseUrl" | "token"> = {}): CardmintClient {
    const { CARDMINT_URL: baseUrl, CARDMINT_TOKEN: token } = process.env;
    if (!baseUrl) throw new TypeError('cardmint: CARDMINT_URL is not set; it is the service\'s address, like "https://cards.example.com"');
    if (!token) throw new TypeError("cardmint: CARDMINT_TOKEN is not set; it is a token of the account");
    return new CardmintClient({ ...options, baseUrl, token });
  }

  /**
   * Asks for a card and answers how to pay for it: send exactly `payment.amount` of `payment.currency` to `payment.address` before
   * `payment.expires_at`. It never makes a second card by repeating itself.
   */
  async createCard(request: t.CreateCardRequest, options: KeyedOptions = {}): Promise<t.Card> {
    const card = answer(await this.api.POST("/api/cards", { body: request, ...keyed(options, {}) }));
    return printMasked({ ...card, usd_amount: usd(card.usd_amount) });
  }

  /** Reads one card. Of a card that does not exist or is another account's, it is a CardmintError `not_found`. */
  async getCard(uuid: string, options: CallOptions = {}): Promise<t.Card> {
    return printMasked(answer(await this.api.GET("/api/cards/{uuid}", { params: { path: { uuid } }, ...options })));
  }

  /** Reads one card with its whole credentials, also where getCard masks them. The service keeps a record of each call. */
  async revealCard(uuid: string, options: KeyedOptions = {}): Promise<t.Card> {
    return printMasked(answer(await this.api.POST("/api/cards/{uuid}/reveal", keyed(options, { path: { uuid } }))));
  }

  /**
   * Ends a card that holds no money, and answers it after that. It is harmless to repeat. Once money has arrived, even without a
   * confirmation, it is a CardmintError `card_has_payments`.
   */
  async cancelCard(uuid: string, options: KeyedOptions = {}): Promise<t.Card> {
    return printMasked(answer(await this.api.POST("/api/cards/{uuid}/cancel", keyed(options, { path: { uuid } }))));
  }

  /**
   * Goes through the account's cards, newest first. They are fetched page by page as the loop goes on. A loop that ends without an
   * error has seen them all.
   */
  listCards(options: ListCardsOptions = {}): AsyncGenerator<t.Card, void, undefined> {
    const { pageSize = 500, signal, ...filter } = options;
    return pages(async (next) => {
      const query = { ...filter, limit: pageSize, ...next } as Query<"listCards">;
      const page = await this.api.GET("/api/cards", { params: { query }, ...only(signal) });
      page.data?.forEach(printMasked);
      return page;
    });
  }

  /**
   * Goes through the account's events in order, to the last there is. Keep the `seq` of the last one that you have handled, and go on
   * after it: so nothing is missed, whatever happened to the account's webhooks.
   */
  listEvents(options: ListEventsOptions = {}): AsyncGenerator<t.Event, void, undefined> {
    const { after = 0, signal } = options;
    return pages<t.Event>(async (next) => {
      const query = { after, limit: 1000, ...next } as Query<"listEvents">;
      const { data, response } = await this.api.GET("/api/events", { params: { query }, ...only(signal) });
      return { data: data as t.Event[], response };
    });
  }

  /**
   * Iterates over the account's events in order, and waits for new ones: it never ends by itself. Store the `seq` of the last event that
   * you have handled, and continue after it at the next start.
   *
   * It throws the reason of `signal` when that is aborted, and a CardmintError if the service rejects the request, for example because
   * the token was revoked. Failures that are likely to pass are waited out.
   */
  async *followEvents(options: FollowEventsOptions = {}): AsyncGenerator<t.Event, never, undefined> {
    const { card, signal = new AbortController().signal } = options;
    let { after = 0 } = options;
    for (let pause = this.#poll.first; ; ) {
      signal.throwIfAborted();
      let events: t.Event[] = [];
      const asked = Date.now();
      try {
        events = await this.#read(card, after, longPoll, signal);
      } catch (err) {
        signal.throwIfAborted();
        if (!temporary(err)) throw err;
      }
      for (const event of events) {
        yield event;
        after = event.seq;
      }
      if (events.length > 0) pause = this.#poll.first;
      else if (Date.now() - asked < (longPoll * 1000) / 2) {
        // The request failed, or the service is shutting down and does not wait.
        await sleep(pause * (0.5 + Math.random() / 2), signal);
        pause = Math.min(pause * 1.5, this.#poll.longest);
      }
    }
  }

  /**
   * Looks at a card again and again until it is generated, and answers it with its credentials. Where the service tells events as they
   * happen, it looks when something happened. Paying takes as long as the blockchain takes, often half an hour.
   *
   * It throws a CardmintPaymentError when waiting longer is of no use, a CardmintTimeoutError after `timeout`, the reason of `signal`
   * when that is aborted, and what keeps the card from being read. Once it was seen, failures that are likely to pass do not end the wait.
   */
  waitForCard(uuid: string, options: WaitOptions = {}): Promise<t.IssuedCard> {
    return waitForCard(this, this.#feed, this.#poll, uuid, options);
  }

  /** Lists the cryptocurrencies that a card can be paid with, and their rates now. */
  async listCurrencies(options: CallOptions = {}): Promise<t.Currency[]> {
    return answer(await this.api.GET("/api/currencies", { ...options }));
  }

  /** Lists the amounts that cards can be ordered for right now, ascending. It may be some seconds old. */
  async listOffers(options: CallOptions = {}): Promise<t.Offer[]> {
    return answer(await this.api.GET("/api/offers", { ...options }));
  }

  /** Pays for a card with simulated money; by default what is due, confirmed. Only a sandbox can do this. */
  async simulatePayment(uuid: string, request: t.SimulatePaymentRequest = {}, options: KeyedOptions = {}): Promise<t.Card> {
    const path = "/api/sandbox/cards/{uuid}/payments";
    return printMasked(answer(await this.api.POST(path, { body: request, ...keyed(options, { path: { uuid } }) })));
  }

  /** Registers an address that events are sent to. Its secret is not shown again; {@link verifyWebhook} needs it. */
  async createWebhook(request: t.CreateWebhookRequest, options: KeyedOptions = {}): Promise<t.WebhookWithSecret> {
    return printWithoutSecret(answer(await this.api.POST("/api/webhooks", { body: request, ...keyed(options, {}) })));
  }

  /** Lists the account's webhooks, oldest first. */
  async listWebhooks(options: CallOptions = {}): Promise<t.Webhook[]> {
    return answer(await this.api.GET("/api/webhooks", { ...options }));
  }

  async getWebhook(id: string, options: CallOptions = {}): Promise<t.Webhook> {
    return answer(await this.api.GET("/api/webhooks/{webhook_id}", { ...webhook(id), ...options }));
  }

  /** Changes the fields that the request has. */
  async updateWebhook(id: string, request: t.UpdateWebhookRequest, options: CallOptions = {}): Promise<t.Webhook> {
    return answer(await this.api.PATCH("/api/webhooks/{webhook_id}", { ...webhook(id), body: request, ...options }));
  }

  /** Removes a webhook and forgets its deliveries. */
  async deleteWebhook(id: string, options: CallOptions = {}): Promise<void> {
    await this.api.DELETE("/api/webhooks/{webhook_id}", { ...webhook(id), ...options });
  }

  /** Answers the webhook with a new secret. For 24 hours requests are signed with the new one and the one before it. */
  async rotateWebhookSecret(id: string, options: KeyedOptions = {}): Promise<t.WebhookWithSecret> {
    return printWithoutSecret(answer(await this.api.POST("/api/webhooks/{webhook_id}/rotate-secret", keyed(options, webhook(id).params))));
  }

  /** Sends an example to a webhook, now and once, and answers what came of it. Its `seq` is 0 and its card does not exist. */
  async testWebhook(id: string, request: t.TestWebhookRequest = {}, options: KeyedOptions = {}): Promise<t.DeliveryAttempt> {
    return answer(await this.api.POST("/api/webhooks/{webhook_id}/test", { body: request, ...keyed(options, webhook(id).params) }));
  }

  /** Goes through what was sent to a webhook or is to be sent, newest event first. */
  listDeliveries(id: string, options: ListDeliveriesOptions = {}): AsyncGenerator<t.Delivery, void, undefined> {
    const { signal, ...filter } = options;
    return pages(async (next) => {
      const query = { ...filter, limit: 100, ...next } as Query<"listDeliveries">;
      const params = { ...webhook(id).params, query };
      return this.api.GET("/api/webhooks/{webhook_id}/deliveries", { params, ...only(signal) });
    });
  }

  /** Has an event sent again as soon as possible, whatever came of it before. */
  async redeliver(id: string, event: string, options: KeyedOptions = {}): Promise<void> {
    const path = { webhook_id: id, event_id: event };
    await this.api.POST("/api/webhooks/{webhook_id}/deliveries/{event_id}/redeliver", keyed(options, { path }));
  }

  /** Has every event sent now that happened at `since` or later and that the webhook has missed, and answers how many these are. */
  async recoverWebhook(id: string, since: Date, options: KeyedOptions = {}): Promise<t.Recovery> {
    const params = { ...webhook(id).params, query: { since: since.toISOString() } };
    return answer(await this.api.POST("/api/webhooks/{webhook_id}/recover", keyed(options, params)));
  }
}

const longPoll = 30; // seconds

type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

const webhook = (id: string) => ({ params: { path: { webhook_id: id } } });

/** What a call takes that does something: its parameters, and the caller's key or else a random one. */
function keyed<Params extends object>(options: KeyedOptions, params: Params) {
  const { idempotencyKey = crypto.randomUUID(), ...call } = options;
  if (!visible(idempotencyKey) || idempotencyKey.length > 255) {
    throw new TypeError("cardmint: an idempotency key needs 1 to 255 visible ASCII characters");
  }
  return { params: { ...params, header: { "Idempotency-Key": idempotencyKey } }, ...call };
}

const only = (signal: AbortSignal | undefined): CallOptions => (signal ? { signal } : {});

/** Whether s can be sent in a header as one word. */
function visible(s: string): boolean {
  return /^[!-~]+$/.test(s);
}

function serviceUrl(text: string): string {
  // Errors do not repeat the text, which may hold a password.
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new TypeError('cardmint: the base URL must have a scheme and a host, like "https://cards.example.com"');
  }
  if (url.username || url.password || url.search || url.hash) {
    throw new TypeError("cardmint: the base URL must not have a user, a query or a fragment");
  }
  return url.origin + url.pathname.replace(/\/+$/, "").replace(/\/api$/, "").replace(/\/+$/, "");
}

/** The body of an answer that must have one. */
function answer<T>(res: { data?: T }): T {
  if (res.data === undefined || res.data === null) throw new CardmintConnectionError("the response is empty");
  return res.data;
}

/**
 * The one amount that comes as a number, written as all others are. Nothing is lost: a dollar amount with two decimals has far fewer
 * digits than a number keeps.
 */
function usd(amount: number): string {
  return Number.isInteger(amount) ? String(amount) : amount.toFixed(2);
}

/** Goes through a list whose pages `read` fetches; it gets the query that leads to a page. */
async function* pages<T>(
  read: (next: Record<string, string>) => Promise<{ data?: T[]; response: Response }>,
): AsyncGenerator<T, void, undefined> {
  for (let next: Record<string, string> | undefined = {}, before = ""; next !== undefined; ) {
    const page = await read(next);
    yield* answer(page);
    next = nextPage(page.response);
    const now = JSON.stringify(next);
    if (next !== undefined && now === before) throw new CardmintConnectionError("the next page is the same page");
    before = now;
  }
}

/** The query of the next page, undefined after the last. Host and path of the link are left alone, so that the token stays where it is. */
function nextPage(res: Response): Record<string, string> | undefined {
  const link = /<([^<>]*)>[^<>]*;\s*rel="?next"?\s*(?:[;,]|$)/i.exec(res.headers.get("Link") ?? "");
  if (link === null) return undefined;
  const query = link[1]?.split("#")[0]?.split("?")[1];
  if (!query) throw new CardmintConnectionError("the link to the next page can't be read");
  return Object.fromEntries(new URLSearchParams(query));
}
