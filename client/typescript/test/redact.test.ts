import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { type Card, CardmintClient, CardmintPaymentError } from "@cardmint/client";
import { fake, token } from "./fake.js";

const card = {
  uuid: "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88",
  status: "generated",
  usd_amount: "150",
  payment: { state: "paid" },
  credentials: { card_number: "9912345678901232", expiration_date: "11/29", security_code: "987", url: "https://sandbox.invalid/1", url_password: "q7GmZ4tKx2Rw" },
};
const secrets = ["9912345678901232", "987", "q7GmZ4tKx2Rw", "whsec_MfKQ", token];

function hidden(value: unknown): void {
  for (const text of [inspect(value, { depth: null, showHidden: true }), JSON.stringify(value) ?? "", inspect({ value }), String(value)]) {
    for (const secret of secrets) assert.ok(!text.includes(secret), `${secret} in ${text}`);
  }
}

test("credentials, webhook secrets and the token are hidden in output", async (t) => {
  const { url } = await fake(t, (res, req) => {
    const { pathname } = req.url;
    res.setHeader("Content-Type", "application/json");
    const usd_amount = req.method === "POST" && pathname === "/api/cards" ? 150 : "150";
    if (pathname.includes("webhooks")) res.end(JSON.stringify({ webhook: { id: "a" }, secret: "whsec_MfKQ9r8G" }));
    else if (req.method === "GET" && pathname === "/api/cards") res.end(JSON.stringify([card]));
    else res.end(JSON.stringify({ ...card, usd_amount }));
  });
  const c = new CardmintClient({ baseUrl: url, token });
  hidden(c);
  const cards: Card[] = [await c.createCard({ usd_amount: "150", currency: "monero" }), await c.getCard("a"), await c.revealCard("a"), await c.cancelCard("a"),
    await c.simulatePayment("a"), await c.waitForCard("a")];
  for await (const one of c.listCards()) cards.push(one);
  for (const one of cards) {
    hidden(one);
    hidden([one]);
    assert.match(inspect(one), /\*{12}1232/);
    assert.equal((JSON.parse(JSON.stringify(one)) as Card).credentials.expiration_date, "11/29");
    // The properties hold the values, and copies print them.
    assert.deepEqual(one.credentials, card.credentials);
    assert.match(JSON.stringify({ ...one.credentials }), /9912345678901232/);
  }
  for (const created of [await c.createWebhook({ url: "https://shop.example" }), await c.rotateWebhookSecret("a")]) {
    hidden(created);
    assert.equal(created.secret, "whsec_MfKQ9r8G");
  }
});

test("waitForCard returns credentials that are not null, or throws", async (t) => {
  let { credentials }: { credentials: Record<string, string | null> } = card;
  const { url } = await fake(t, (res) => {
    res.setHeader("Content-Type", "application/json");
    res.end(JSON.stringify({ ...card, credentials }));
  });
  const c = new CardmintClient({ baseUrl: url, token });
  const last4: string = (await c.waitForCard("a")).credentials.card_number.slice(-4); // would not compile if it could be null
  assert.equal(last4, "1232");
  credentials = Object.fromEntries(Object.keys(credentials).map((name) => [name, null]));
  await assert.rejects(c.waitForCard("a"), (err) => err instanceof CardmintPaymentError && /credentials have been deleted/.test(err.message));
});

test("fromEnv reads the environment", () => {
  const { CARDMINT_URL, CARDMINT_TOKEN } = process.env;
  try {
    delete process.env["CARDMINT_URL"];
    process.env["CARDMINT_TOKEN"] = token;
    assert.throws(() => CardmintClient.fromEnv(), /CARDMINT_URL is not set/);
    process.env["CARDMINT_URL"] = "http://127.0.0.1:1";
    assert.ok(CardmintClient.fromEnv({ userAgent: "shop" }) instanceof CardmintClient);
    delete process.env["CARDMINT_TOKEN"];
    assert.throws(() => CardmintClient.fromEnv(), /CARDMINT_TOKEN is not set/);
  } finally {
    Object.assign(process.env, { ...(CARDMINT_URL && { CARDMINT_URL }), ...(CARDMINT_TOKEN && { CARDMINT_TOKEN }) });
  }
});

test("followEvents waits for new events and survives failures", async (t) => {
  let requests = 0;
  const { url, received } = await fake(t, (res) => {
    res.setHeader("Content-Type", "application/json");
    requests++;
    if (requests === 2) res.destroy();
    else if (requests === 3) res.end("[]");
    else if (requests === 5) res.writeHead(401).end(JSON.stringify({ code: "unauthorized" }));
    else res.end(JSON.stringify([{ id: "a", type: "payment.detected", timestamp: "", seq: requests, card_uuid: "b" }]));
  });
  const c = new CardmintClient({ baseUrl: url, token, retry: { maxAttempts: 1 }, pollInterval: { first: 1, longest: 2 } });
  const seqs: number[] = [];
  await assert.rejects(async () => {
    for await (const event of c.followEvents({ card: "b" })) seqs.push(event.seq);
  }, { status: 401 });
  assert.deepEqual(seqs, [1, 4]);
  assert.deepEqual(received.map(({ url }) => url.search), [0, 1, 1, 1, 4].map((after) => `?after=${after}&card=b&wait=30`));
  const aborted = AbortSignal.abort(new Error("shutdown"));
  await assert.rejects(c.followEvents({ signal: aborted }).next(), /shutdown/);
});
