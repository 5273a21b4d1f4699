import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { CardmintPaymentError, CardmintTimeoutError } from "@cardmint/client";
import { type Answer, card, client, fake, generated, json, problem, reset, script, uuid } from "./fake.js";

const quick = { pollInterval: { first: 2, longest: 4 }, retry: { maxAttempts: 1 } };
const never = { pollInterval: { first: 600_000, longest: 600_000 } }; // the test would not end if it had to poll

/** A service with a card, and events that are answered as `events` says. */
const service = (cards: Answer, events: Answer): Answer => (res, req) => (req.url.pathname === "/api/events" ? events : cards)(res, req);

const event = (seq: number, card_uuid = uuid) => ({
  id: "019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11",
  type: "card.generated",
  timestamp: "2026-11-20T15:06:00.120Z",
  seq,
  card_uuid,
  status: "generated",
  payment_state: "paid",
});

for (const [name, events] of [
  ["ignores that it is to wait", json([])],
  ["refuses to wait", problem(422, "invalid_request")],
  ["has no feed", problem(404, "not_found")],
  ["does not move on", json([event(0)])],
] as const) {
  test(`a service that ${name} is asked once, and the card again and again`, async (t) => {
    const s = await fake(t, service(script(...Array<Answer>(20).fill(json(card())), json(generated)), events));
    assert.equal((await client(s.url, quick).waitForCard(uuid)).status, "generated");
    const asked = s.received.filter((r) => r.url.pathname === "/api/events");
    assert.equal(asked.length, 1);
    assert.equal(asked[0]?.url.search, "?after=0&limit=1000&wait=30");
    assert.equal(s.received.length, 22);
  });
}

test("an event ends the wait at once, however many wait", async (t) => {
  const other = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d00";
  let open: ServerResponse | undefined;
  let looks = 0;
  let issued = false;
  const cards: Answer = (res, req) => {
    json(issued ? generated : card())(res, req);
    if (++looks === 3) tell();
  };
  const events: Answer = (res, req) => {
    if (req.url.searchParams.get("after") === "0") return json([event(1, other), event(2, other)])(res, req); // what was before
    open = res;
    if (looks === 3) tell();
  };
  const tell = (): void => {
    if (!open) return;
    issued = true;
    json([event(3, other), event(4)])(open, s.received[0]!);
    open = undefined;
    looks++;
  };
  const s = await fake(t, service(cards, events));
  const c = client(s.url, never);
  const all = await Promise.all([c.waitForCard(uuid), c.waitForCard(uuid), c.waitForCard(uuid)]);
  assert.deepEqual(all.map((one) => one.status), ["generated", "generated", "generated"]);
  const asked = s.received.filter((r) => r.url.pathname === "/api/events").map((r) => r.url.searchParams.get("after"));
  assert.deepEqual(asked.slice(0, 2), ["0", "2"]);
  assert.ok(asked.length <= 3, asked.join());
});

test("what happened before is passed over page by page, and not without end", async (t) => {
  let seq = 0;
  const more = { Link: '</api/events?after=1&limit=1000>; rel="next"' };
  const events: Answer = (res, req) => json([event(++seq, "019aa1c9-f868-7cef-8e4e-9b1c97fb1d00")], more)(res, req);
  const cards: Answer = (res, req) => json(seq > 20 ? generated : card())(res, req);
  const s = await fake(t, service(cards, events));
  await client(s.url, quick).waitForCard(uuid);
  assert.equal(s.received.filter((r) => r.url.pathname === "/api/events").length, 21);
});

test("failures that pass do not end the wait once the card was seen", async (t) => {
  const s = await fake(t, service(script(json(card()), problem(503, "unavailable"), reset, json(generated)), json([])));
  assert.equal((await client(s.url, quick).waitForCard(uuid)).status, "generated");
});

test("a failure before the card was seen ends the wait", async (t) => {
  const s = await fake(t, service(problem(404, "not_found"), json([])));
  await assert.rejects(client(s.url, quick).waitForCard(uuid), { code: "not_found" });
});

for (const [name, last] of [
  ["expired", card({}, "expired")],
  ["late", card({}, "late")],
  ["refunded", card({ refund: { amount: "0.5", txid: null, at: "2026-11-21T09:12:44.310Z" } }, "unpaid")],
] as const) {
  test(`a payment that is ${name} ends the wait`, async (t) => {
    const s = await fake(t, service(script(json(card()), json(last)), json([])));
    await assert.rejects(client(s.url, quick).waitForCard(uuid), (err) => err instanceof CardmintPaymentError && err.card.payment.state === last.payment.state);
  });
}

test("a timeout tells how far the payment is", async (t) => {
  const s = await fake(t, service(json(card()), () => {}));
  await assert.rejects(client(s.url, never).waitForCard(uuid, { timeout: 300 }), (err: Error) => {
    assert.ok(err instanceof CardmintTimeoutError);
    assert.equal(err.card?.uuid, uuid);
    assert.match(err.message, /unpaid: 0\.983456789012 monero are due, 0 of 10 confirmations/);
    return true;
  });
});

test("a signal ends the wait, and the request for events", async (t) => {
  const stop = new AbortController();
  const closed = new Promise<void>((resolve) => {
    const events: Answer = (res) => {
      res.on("close", resolve);
      stop.abort(new Error("enough"));
    };
    void fake(t, service(json(card()), events)).then((s) =>
      assert.rejects(client(s.url, never).waitForCard(uuid, { signal: stop.signal }), { message: "enough" }),
    );
  });
  await closed;
});
