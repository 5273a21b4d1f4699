import { CardmintError } from "./errors.js";
import type { Event } from "./types.js";

/** Reads the events after one, and waits for them up to so many seconds if there are none. `more` says that there is another page. */
export type ReadFeed = (after: number, wait: number, signal: AbortSignal) => Promise<{ events: Event[]; more: boolean }>;

const longPoll = 30; // seconds
const mostPages = 20; // of a thousand events, to get past what happened before
const rest = 5 * 60_000;

/** Someone who waits for news of one card. */
export interface Watcher {
  /** Pauses until there is news, or until the time is over: `quiet` milliseconds while the feed tells news, and else `unsure`. */
  pause(unsure: number, quiet: number, signal: AbortSignal): Promise<void>;
  stop(): void;
}

/**
 * Tells everybody who waits for a card on one client as soon as something happens to it, by a single request that the service answers
 * when there are events. It only saves time: a service that does not know how to wait, refuses or fails is left alone for some
 * minutes, and those who wait look at their cards from time to time anyhow.
 */
export class Feed {
  readonly #read: ReadFeed;
  readonly #watchers = new Map<symbol, { uuid: string; wake: () => void }>();
  #after = 0; // the last event that was read
  #running: AbortController | undefined;
  #telling = false; // whether the feed was read to its end, and news comes at once
  #restUntil = 0;

  constructor(read: ReadFeed) {
    this.#read = read;
  }

  watch(uuid: string): Watcher {
    const key = Symbol(uuid);
    let news = false;
    let wake = (): void => {};
    this.#watchers.set(key, {
      uuid: uuid.toLowerCase(),
      wake: () => {
        news = true;
        wake();
      },
    });
    return {
      pause: async (unsure, quiet, signal) => {
        this.#start();
        signal.throwIfAborted();
        await new Promise<void>((resolve) => {
          if (news) return resolve();
          const timer = setTimeout(resolve, this.#telling ? quiet : unsure);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
          signal.addEventListener("abort", wake, { once: true });
        });
        signal.removeEventListener("abort", wake);
        signal.throwIfAborted();
        news = false;
      },
      stop: () => {
        this.#watchers.delete(key);
        if (this.#watchers.size === 0) this.#stop();
      },
    };
  }

  #start(): void {
    if (this.#running || Date.now() < this.#restUntil) return;
    const running = (this.#running = new AbortController());
    void this.#run(running.signal)
      .catch((err: unknown) => {
        // Its number may be one that the service does not know any more, as after a restored backup.
        if (err instanceof CardmintError && err.status === 422) this.#after = 0;
      })
      .finally(() => {
        if (this.#running !== running) return;
        this.#restUntil = Date.now() + rest;
        this.#stop();
      });
  }

  #stop(): void {
    this.#running?.abort();
    this.#running = undefined;
    this.#telling = false;
  }

  /** Reads until the signal is aborted, or until it is of no use. */
  async #run(signal: AbortSignal): Promise<void> {
    for (let pages = 0; ; ) {
      const asked = Date.now();
      const { events, more } = await this.#read(this.#after, longPoll, signal);
      if (signal.aborted) return;
      const last = events.at(-1);
      if (last === undefined) {
        // A service that waits answers nothing only after a while. One that answers at once would be asked without end.
        if (Date.now() - asked < (longPoll * 1000) / 2) return;
      } else {
        if (!(last.seq > this.#after)) return; // nor one that does not move on
        this.#after = last.seq;
        for (const e of events) this.#tell(e);
      }
      pages = more ? pages + 1 : 0;
      if (pages > mostPages) return;
      this.#telling = !more;
    }
  }

  #tell(e: Event): void {
    for (const { uuid, wake } of this.#watchers.values()) {
      if (e.type === "feed.reset" || ("card_uuid" in e && e.card_uuid === uuid)) wake();
    }
  }
}
