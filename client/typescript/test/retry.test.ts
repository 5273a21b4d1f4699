import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { CardmintClient, CardmintConnectionError, CardmintError } from "@cardmint/client";
import { card, client, fake, json, problem, reset, script, token, uuid } from "./fake.js";

const order = { usd_amount: "150.50", currency: "monero" };

for (const [name, failure] of [
  ["503", problem(503, "unavailable")],
  ["429", problem(429, "quota_exceeded")],
  ["a reset", reset],
] as const) {
  test(`createCard is retried after ${name} with the same key`, async (t) => {
    const service = await fake(t, script(failure, failure, json({ ...card(), usd_amount: 150.5 })));
    const created = await client(service.url).createCard(order);
    assert.equal(created.usd_amount, "150.50");
    assert.equal(service.received.length, 3);
    const keys = new Set(service.received.map((r) => r.headers["idempotency-key"]));
    assert.equal(keys.size, 1);
    assert.match(String([...keys][0]), /^[!-~]{16,255}$/);
    for (const r of service.received) assert.deepEqual(JSON.parse(r.body), order);
  });
}

test("each call sends a different key, or the caller's", async (t) => {
  const service = await fake(t, json({ ...card(), usd_amount: 150.5 }));
  const c = client(service.url);
  await c.createCard(order);
  await c.createCard(order);
  await c.createCard(order, { idempotencyKey: "order-4711" });
  const keys = service.received.map((r) => r.headers["idempotency-key"]);
  assert.equal(new Set(keys).size, 3);
  assert.equal(keys[2], "order-4711");
  await assert.rejects(c.createCard(order, { idempotencyKey: "two words" }), TypeError);
  assert.equal(service.received.length, 3);
});

const calls: Record<string, (c: CardmintClient, options: { idempotencyKey?: string }) => Promise<unknown>> = {
  createCard: (c, o) => c.createCard(order, o),
  cancelCard: (c, o) => c.cancelCard(uuid, o),
  revealCard: (c, o) => c.revealCard(uuid, o),
  simulatePayment: (c, o) => c.simulatePayment(uuid, {}, o),
  createWebhook: (c, o) => c.createWebhook({ url: "https://shop.example.com/hook" }, o),
  rotateWebhookSecret: (c, o) => c.rotateWebhookSecret(uuid, o),
  testWebhook: (c, o) => c.testWebhook(uuid, {}, o),
  redeliver: (c, o) => c.redeliver(uuid, uuid, o),
  recoverWebhook: (c, o) => c.recoverWebhook(uuid, new Date(0), o),
};

for (const [name, call] of Object.entries(calls)) {
  test(`${name} is retried with the same key, or the caller's`, async (t) => {
    const service = await fake(t, script(reset, problem(503, "unavailable"), json({ ...card(), usd_amount: 150.5 })));
    const c = client(service.url);
    await call(c, {});
    await call(c, { idempotencyKey: "order-4711" });
    const keys = service.received.map((r) => r.headers["idempotency-key"]);
    assert.equal(keys.length, 4);
    assert.match(String(keys[0]), /^[!-~]{16,255}$/);
    assert.deepEqual(keys, [keys[0], keys[0], keys[0], "order-4711"]);
    await assert.rejects(call(c, { idempotencyKey: "two words" }), TypeError);
  });
}

test("calls through api send a key", async (t) => {
  const service = await fake(t, script(reset, json(card())));
  await client(service.url).api.POST("/api/cards/{uuid}/cancel", { params: { path: { uuid } } });
  const keys = service.received.map((r) => r.headers["idempotency-key"]);
  assert.equal(keys.length, 2);
  assert.match(String(keys[0]), /^[!-~]{16,255}$/);
  assert.equal(keys[0], keys[1]);
});

test("an internal error is not retried", async (t) => {
  const service = await fake(t, problem(500, "internal"));
  await assert.rejects(client(service.url).getCard(uuid), { status: 500, code: "internal", requestId: "req-1" });
  assert.equal(service.received.length, 1);
});

test("maxAttempts limits the attempts", async (t) => {
  const service = await fake(t, problem(503, "unavailable"));
  await assert.rejects(client(service.url, { retry: { maxAttempts: 2 } }).getCard(uuid), { status: 503 });
  assert.equal(service.received.length, 2);
});

test("a Retry-After beyond maxElapsed is left to the caller", async (t) => {
  const service = await fake(t, problem(503, "rate_unavailable", { "Retry-After": "3600" }));
  await assert.rejects(client(service.url).getCard(uuid), { code: "rate_unavailable", retryAfter: 3_600_000 });
  assert.equal(service.received.length, 1);
});

test("deleteWebhook succeeds if an earlier attempt deleted the webhook", async (t) => {
  const service = await fake(t, script(reset, problem(404, "not_found")));
  await client(service.url).deleteWebhook(uuid);
  assert.equal(service.received.length, 2);
  await assert.rejects(client(service.url).deleteWebhook(uuid), { code: "not_found" });
});

test("an attempt that times out is retried", async (t) => {
  const service = await fake(t, script(() => {}, json(card())));
  await client(service.url, { attemptTimeout: 200 }).getCard(uuid);
  assert.equal(service.received.length, 2);
});

test("a signal aborts a call and its backoff", async (t) => {
  const stop = new AbortController();
  const service = await fake(t, (res) => {
    problem(503, "unavailable", { "Retry-After": "30" })(res, service.received[0]!);
    setImmediate(() => stop.abort(new Error("enough")));
  });
  await assert.rejects(client(service.url).getCard(uuid, { signal: stop.signal }), { message: "enough" });
  await assert.rejects(client(service.url).getCard(uuid, { signal: stop.signal }), { message: "enough" });
  assert.equal(service.received.length, 1);
});

test("redirects are not followed", async (t) => {
  const service = await fake(t, (res) => res.writeHead(302, { Location: "https://elsewhere.invalid/" }).end());
  await assert.rejects(client(service.url).getCard(uuid), { status: 302, code: undefined });
  assert.equal(service.received.length, 1);
});

test("responses that are not the service's are rejected and not retried", async (t) => {
  const page = script(
    (res) => res.writeHead(200, { "Content-Type": "text/html" }).end("<html>4111111111111111"),
    (res) => res.writeHead(200, { "Content-Type": "application/json" }).end('{"card_number": 4111111111111111 oops'),
    (res) => res.writeHead(404, { "Content-Type": "text/html" }).end("<html>4111111111111111"),
  );
  const service = await fake(t, page);
  for (const n of [1, 2, 3]) {
    const err: unknown = await client(service.url).getCard(uuid).catch((e: unknown) => e);
    assert.ok(err instanceof CardmintConnectionError || err instanceof CardmintError);
    assert.ok(!inspect(err).includes("4111"), inspect(err));
    assert.equal(service.received.length, n);
  }
});

test("the token is sent, but never shown", async (t) => {
  const service = await fake(t, script(problem(401, "unauthorized"), reset));
  const c = client(service.url, { retry: { maxAttempts: 1 } });
  const shown = [inspect(c, { depth: 10, showHidden: true }), JSON.stringify(c)];
  for (const call of [c.getCard(uuid), c.getCard(uuid), client("http://127.0.0.1:1").listOffers()]) {
    const err: unknown = await call.catch((e: unknown) => e);
    assert.ok(err instanceof Error);
    shown.push(inspect(err, { depth: 10, showHidden: true }), JSON.stringify(err), err.stack ?? "");
  }
  assert.equal(service.received[0]?.headers.authorization, `Bearer ${token}`);
  for (const text of shown) assert.ok(!text.includes(token), text);
  for (const bad of ["", "two words", "line\nbreak"]) {
    assert.throws(
      () => new CardmintClient({ baseUrl: service.url, token: bad }),
      (err: Error) => bad === "" || !err.message.includes(bad),
    );
  }
});

test("the base URL may end in a slash or in /api, and have a path", async (t) => {
  const service = await fake(t, json(card()));
  for (const end of ["", "/", "/api", "/api/", "/shop", "/shop/api/"]) await client(service.url + end).getCard(uuid);
  const paths = service.received.map((r) => r.url.pathname.replace(uuid, ""));
  assert.deepEqual(paths, ["/api/cards/", "/api/cards/", "/api/cards/", "/api/cards/", "/shop/api/cards/", "/shop/api/cards/"]);
  for (const bad of ["cards.example.com", "ftp://cards.example.com", "https://user:secret@cards.example.com", "https://cards.example.com?a=b"]) {
    assert.throws(() => client(bad), (err: Error) => err instanceof TypeError && !err.message.includes("secret"));
  }
});

test("the link to the next page can't redirect to another host", async (t) => {
  const next = { Link: '<https://elsewhere.invalid/api/cards?cursor=abc&limit=1>; rel="next"' };
  const service = await fake(t, script(json([card()], next), json([card()])));
  let n = 0;
  for await (const _ of client(service.url).listCards({ pageSize: 1, status: "generated" })) n++;
  assert.equal(n, 2);
  assert.deepEqual(service.received.map((r) => r.url.search), ["?status=generated&limit=1", "?status=generated&limit=1&cursor=abc"]);
  const endless = await fake(t, json([card()], next));
  await assert.rejects(async () => {
    for await (const _ of client(endless.url).listCards()) n++;
  }, CardmintConnectionError);
  assert.equal(endless.received.length, 2);
});
