import { CardmintError } from "./errors.js";
import type { Event } from "./types.js";

/** Reads events after one, of a card or of all, and if there are none waits for them up to `wait` seconds. */
export type ReadFeed = (card: string | undefined, after: number, wait: number, signal: AbortSignal) => Promise<Event[]>;

/** The card whose events are waited for, and the `seq` of the last one that was read. */
export interface Followed {
  uuid: string;
  after: number;
}

const longPoll = 30; // seconds
const mostAtOnce = 4; // of the few that a token may have; whoever waits for many cards should have webhooks
const rest = 5 * 60_000;

/**
 * Waits for news of cards by requests that the service answers when there are some. That only saves time, as whoever waits looks at
 * the card from time to time anyhow: a service that can't wait, refuses or fails is not asked again for some minutes.
 */
export class Feed {
  readonly #read: ReadFeed;
  #waiting = 0;
  #restUntil = 0;

  constructor(read: ReadFeed) {
    this.#read = read;
  }

  /** Waits until there is news of the card or the service has waited long enough. False says that it did not wait. */
  async wait(card: Followed, signal: AbortSignal): Promise<boolean> {
    if (this.#waiting >= mostAtOnce || Date.now() < this.#restUntil) return false;
    this.#waiting++;
    try {
      const asked = Date.now();
      const events = await this.#read(card.uuid, card.after, longPoll, signal);
      const last = events.at(-1);
      if (last === undefined) {
        // A service that does not know how to wait answers at once, and would be asked without end.
        if (Date.now() - asked > (longPoll * 1000) / 2) return true;
      } else if (last.seq > card.after && events.every((e) => "card_uuid" in e && e.card_uuid === card.uuid.toLowerCase())) {
        card.after = last.seq;
        return true;
      }
    } catch (err) {
      signal.throwIfAborted();
      // It may be a number that the service does not know any more, as after a restored backup.
      if (err instanceof CardmintError && err.status === 422) card.after = 0;
    } finally {
      this.#waiting--;
    }
    this.#restUntil = Date.now() + rest;
    return false;
  }
}
