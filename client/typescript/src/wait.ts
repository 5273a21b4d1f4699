import { CardmintError, CardmintPaymentError, CardmintTimeoutError } from "./errors.js";
import type { Feed } from "./feed.js";
import { isTemporary, sleep } from "./transport.js";
import type { Card, IssuedCard } from "./types.js";

export interface WaitOptions {
  /** How long to wait, in milliseconds. Defaults to no limit. */
  timeout?: number;
  /** Aborts the wait, which then throws the signal's reason. */
  signal?: AbortSignal;
}

interface Reader {
  getCard(uuid: string, options: { signal: AbortSignal }): Promise<Card>;
}

const maxTimer = 2 ** 31 - 1;

/** See {@link CardmintClient.waitForCard}. */
export async function waitForCard(
  client: Reader,
  feed: Feed,
  poll: { first: number; longest: number },
  uuid: string,
  options: WaitOptions,
): Promise<IssuedCard> {
  const controller = new AbortController();
  const { signal: caller, timeout } = options;
  caller?.throwIfAborted();
  const end = (): void => controller.abort(caller?.reason);
  caller?.addEventListener("abort", end, { once: true });
  const late = Symbol("late");
  const timer = timeout === undefined ? undefined : setTimeout(() => controller.abort(late), Math.min(timeout, maxTimer));
  const { signal } = controller;
  const followed = { uuid, after: 0 }; // starts at the first event, so that none is missed
  let card: Card | undefined;
  let last: unknown;
  try {
    for (let interval = poll.first; ; interval = Math.min(interval * 1.5, poll.longest)) {
      let pause = interval * (0.5 + Math.random() / 2);
      try {
        card = await client.getCard(uuid, { signal });
        last = undefined;
        if (issued(card)) return card;
        throwIfFinal(card);
      } catch (err) {
        if (signal.aborted || err instanceof CardmintPaymentError || card === undefined || !isTemporary(err)) throw err;
        last = err;
        if (err instanceof CardmintError) pause = Math.max(pause, err.retryAfter);
      }
      // After a failure, pause: an event would not help.
      if (last !== undefined || !(await feed.wait(followed, signal))) await sleep(pause, signal);
    }
  } catch (err) {
    if (signal.reason === late) throw new CardmintTimeoutError(uuid, card, last);
    throw err;
  } finally {
    clearTimeout(timer);
    caller?.removeEventListener("abort", end);
  }
}

function issued(card: Card): card is IssuedCard {
  return card.status === "generated" && Object.values(card.credentials).every((value) => value !== null);
}

/** Throws if waiting longer for the card is pointless. */
function throwIfFinal(card: Card): void {
  const { state } = card.payment;
  if (card.status === "generated") throw new CardmintPaymentError(card, "the card was issued, but its credentials have been deleted");
  if (card.refund !== null && (state === "unpaid" || state === "expired" || state === "canceled")) {
    throw new CardmintPaymentError(card, "the service's operator gave the money back; do not pay any more, ask for a new card");
  }
  if (state === "expired") {
    throw new CardmintPaymentError(card, "nothing arrived in time; do not pay any more, ask for a new card");
  }
  if (state === "canceled") {
    throw new CardmintPaymentError(card, "the card was canceled; do not pay any more, ask for a new card");
  }
  if (state === "late") {
    throw new CardmintPaymentError(card, "the money came too late or was too little, and does not buy the card; ask the service's operator");
  }
}
