import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import { type Event, nodeWebhookHandler, webhookHandler } from "@cardmint/client";
import { Webhook } from "standardwebhooks";

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const quiet = { onError: () => undefined };

function signed(id: string, payload: string): Record<string, string> {
  const at = new Date();
  return { "webhook-id": id, "webhook-timestamp": String(Math.floor(at.getTime() / 1000)), "webhook-signature": new Webhook(secret).sign(id, at, payload) };
}

const payload = JSON.stringify({ type: "card.generated", timestamp: "2026-11-20T15:06:00.120Z", seq: 42, card_uuid: "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88" });

function delivery(id = "a", body = payload, headers = signed(id, body)): Request {
  return new Request("https://shop.example/hooks", { method: "POST", headers, body });
}

test("webhookHandler handles each event once", async () => {
  const events: Event[] = [];
  const handler = webhookHandler(secret, (event) => void events.push(event), quiet);
  const responses = await Promise.all([handler(delivery()), handler(delivery()), handler(delivery("b"))]);
  assert.deepEqual(responses.map((r) => r.status), [204, 204, 204]);
  assert.deepEqual(events.map((e) => e.id), ["a", "b"]);
  assert.equal((await handler(delivery())).status, 204);
  assert.equal(events.length, 2);
});

test("an event is handled again after its handler failed", async () => {
  const reported: unknown[] = [];
  let failures = 2;
  let calls = 0;
  const handler = webhookHandler(secret, async () => {
    calls++;
    if (failures-- > 0) throw new Error("database of the shop");
  }, { onError: (err) => reported.push(err) });
  const first = await handler(delivery());
  assert.equal(first.status, 500);
  assert.ok(!(await first.text()).includes("database"));
  assert.deepEqual((await Promise.all([handler(delivery()), handler(delivery())])).map((r) => r.status).sort(), [204, 500]);
  assert.equal(calls, 3);
  assert.match(String(reported[0]), /database/);
});

test("invalid requests are rejected", async () => {
  const handler = webhookHandler(secret, () => assert.fail("handled"), quiet);
  const get = await handler(new Request("https://shop.example/hooks"));
  assert.deepEqual([get.status, get.headers.get("Allow")], [405, "POST"]);
  assert.equal((await handler(delivery("a", payload, {}))).status, 401);
  assert.equal((await handler(delivery("a", payload.replace("42", "43"), signed("a", payload)))).status, 401);
  for (const body of ["[]", "no JSON", ""]) assert.equal((await handler(delivery("a", body))).status, 400, body);
  assert.equal((await handler(delivery("a", "x".repeat(70_000)))).status, 413);
  assert.throws(() => webhookHandler("guessable", () => undefined), TypeError);
});

async function serve(t: TestContext, listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("nodeWebhookHandler accepts a raw or unread body", async (t) => {
  let handled = 0;
  const handler = nodeWebhookHandler(secret, () => void handled++, quiet);
  const url = await serve(t, (req, res) => void handler(req, res));
  const send = (to: string, init: RequestInit) => fetch(to, init).then((res) => res.status);
  assert.equal(await send(url, { method: "POST", headers: signed("a", payload), body: payload }), 204);
  assert.equal(await send(url, { method: "POST", headers: signed("a", payload), body: `${payload} ` }), 401);
  assert.equal(await send(url, {}), 405);

  const parsed = async (body: (text: string) => unknown): Promise<string> =>
    serve(t, async (req, res) => {
      let text = "";
      for await (const chunk of req) text += String(chunk);
      await handler(Object.assign(req, { body: body(text) }), res);
    });
  const raw = await parsed((text) => Buffer.from(text)); // as express.raw() does
  assert.equal(await send(raw, { method: "POST", headers: signed("b", payload), body: payload }), 204);
  const json = await parsed((text) => JSON.parse(text) as unknown); // as express.json() does
  assert.equal(await send(json, { method: "POST", headers: signed("c", payload), body: payload }), 500);
  assert.equal(handled, 2);
});
