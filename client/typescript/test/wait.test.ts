import assert from "node:assert/strict";
import { test } from "node:test";
import { CardmintPaymentError, CardmintTimeoutError } from "@cardmint/client";
import { type Answer, card, client, fake, generated, json, problem, reset, script, uuid } from "./fake.js";

const quick = { pollInterval: { first: 2, longest: 4 }, retry: { maxAttempts: 1 } };
const never = { pollInterval: { first: 600_000, longest: 600_000 } }; // the test would time out if it had to poll

/** Responds to requests for events with `events`, and to all others with `cards`. */
const service = (cards: Answer, events: Answer): Answer => (res, req) => (req.url.pathname === "/api/events" ? events : cards)(res, req);

const other = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d00";

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
  ["does not wait for events", json([])],
  ["rejects waiting for events", problem(422, "invalid_request")],
  ["has no feed", problem(404, "not_found")],
  ["repeats an event", json([event(0)])],
  ["sends events of other cards", json([event(1), event(2, other)])],
] as const) {
  test(`with a service that ${name}, the card is polled`, async (t) => {
    const s = await fake(t, service(script(...Array<Answer>(20).fill(json(card())), json(generated)), events));
    assert.equal((await client(s.url, quick).waitForCard(uuid)).status, "generated");
    const asked = s.received.filter((r) => r.url.pathname === "/api/events");
    assert.equal(asked.length, 1);
    assert.equal(asked[0]?.url.search, `?after=0&card=${uuid}&wait=30`);
    assert.equal(s.received.length, 22);
  });
}

test("an event triggers a read of the card at once", async (t) => {
  let issued = false;
  const cards: Answer = (res, req) => json(issued ? generated : card())(res, req);
  const events = script(json([event(7)]), (res, req) => {
    issued = true;
    json([event(9)])(res, req);
  });
  const s = await fake(t, service(cards, events));
  assert.equal((await client(s.url, never).waitForCard(uuid.toUpperCase())).status, "generated");
  const asked = s.received.filter((r) => r.url.pathname === "/api/events").map((r) => r.url.searchParams.get("after"));
  assert.deepEqual(asked, ["0", "7"]);
});

test("only four calls wait for events, and the others poll", async (t) => {
  let reads = 0;
  const held: Array<() => void> = [];
  const cards: Answer = (res, req) => {
    json(reads++ > 100 ? generated : card())(res, req);
    if (reads > 100) for (const release of held.splice(0)) release();
  };
  const events: Answer = (res, req) => {
    held.push(() => json([event(1)])(res, req));
    if (reads > 100) held.pop()?.();
  };
  const s = await fake(t, service(cards, events));
  const c = client(s.url, quick);
  await Promise.all(Array.from({ length: 10 }, () => c.waitForCard(uuid)));
  assert.equal(s.received.filter((r) => r.url.pathname === "/api/events").length, 4);
});

test("temporary failures do not end the wait once the card has been read", async (t) => {
  const s = await fake(t, service(script(json(card()), problem(503, "unavailable"), reset, json(generated)), json([])));
  assert.equal((await client(s.url, quick).waitForCard(uuid)).status, "generated");
});

test("a failure of the first read ends the wait", async (t) => {
  const s = await fake(t, service(problem(404, "not_found"), json([])));
  await assert.rejects(client(s.url, quick).waitForCard(uuid), { code: "not_found" });
  const unavailable = await fake(t, service(script(problem(503, "unavailable"), json(generated)), json([])));
  await assert.rejects(client(unavailable.url, quick).waitForCard(uuid), { code: "unavailable" });
});

for (const [name, last] of [
  ["expired", card({}, "expired")],
  ["late", card({}, "late")],
  ["canceled", card({}, "canceled")],
  ["canceled, and refunded", card({ refund: { amount: "0.5", txid: null, at: "2026-11-21T09:12:44.310Z" } }, "canceled")],
  ["refunded", card({ refund: { amount: "0.5", txid: null, at: "2026-11-21T09:12:44.310Z" } }, "unpaid")],
] as const) {
  test(`a payment that is ${name} ends the wait`, async (t) => {
    const s = await fake(t, service(script(json(card()), json(last)), json([])));
    await assert.rejects(client(s.url, quick).waitForCard(uuid), (err) => err instanceof CardmintPaymentError && err.card.payment.state === last.payment.state);
  });
}

test("a timeout error shows the progress of the payment", async (t) => {
  const s = await fake(t, service(json(card()), () => {}));
  await assert.rejects(client(s.url, never).waitForCard(uuid, { timeout: 300 }), (err: Error) => {
    assert.ok(err instanceof CardmintTimeoutError);
    assert.equal(err.card?.uuid, uuid);
    assert.match(err.message, /unpaid: 0\.983456789012 monero are due, 0 of 10 confirmations/);
    return true;
  });
});

test("a signal ends only its own wait", async (t) => {
  let stop = new AbortController();
  const events: Answer = () => stop.abort(new Error("enough"));
  const s = await fake(t, service(json(card()), events));
  const c = client(s.url, never);
  for (const asked of [1, 2]) {
    stop = new AbortController();
    await assert.rejects(c.waitForCard(uuid, { signal: stop.signal }), { message: "enough" });
    assert.equal(s.received.filter((r) => r.url.pathname === "/api/events").length, asked);
  }
});
