import { CardmintError } from "./errors.js";
import type { Event } from "./types.js";

/**
 * Returns the events after `after`, of one card or of all. If there are none, it waits for up to
 * `wait` seconds.
 */
export type ReadFeed = (card: string | undefined, after: number, wait: number, signal: AbortSignal) => Promise<Event[]>;

/** A card to follow, and the `seq` of its last event that was read. */
export interface Followed {
  uuid: string;
  after: number;
}

const longPoll = 30; // seconds
const maxConcurrent = 4; // a token may have only a few; for many cards, webhooks are better
const pauseAfterFailure = 5 * 60_000;

/**
 * Waits for events of cards by long polling. It only saves time, because the caller also polls the
 * card: after a service fails, rejects the request or does not wait, the feed is not used for some
 * minutes.
 */
export class Feed {
  readonly #read: ReadFeed;
  #waiting = 0;
  #pausedUntil = 0;

  constructor(read: ReadFeed) {
    this.#read = read;
  }

  /**
   * Waits for an event of the card, or until the service ends the wait. Returns false if the
   * service did not wait.
   */
  async wait(card: Followed, signal: AbortSignal): Promise<boolean> {
    if (this.#waiting >= maxConcurrent || Date.now() < this.#pausedUntil) return false;
    this.#waiting++;
    try {
      const start = Date.now();
      const events = await this.#read(card.uuid, card.after, longPoll, signal);
      const last = events.at(-1);
      if (last === undefined) {
        // Do not loop on a service that does not support waiting and responds at once.
        if (Date.now() - start > (longPoll * 1000) / 2) return true;
      } else if (last.seq > card.after && events.every((e) => "card_uuid" in e && e.card_uuid === card.uuid.toLowerCase())) {
        card.after = last.seq;
        return true;
      }
    } catch (err) {
      signal.throwIfAborted();
      // The service may no longer know the number, for example after a restore.
      if (err instanceof CardmintError && err.status === 422) card.after = 0;
    } finally {
      this.#waiting--;
    }
    this.#pausedUntil = Date.now() + pauseAfterFailure;
    return false;
  }
}
