import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { type CardmintClient, CardmintError, CardmintPaymentError, type Event, verifyWebhook } from "@cardmint/client";
import { root, type Service, startService } from "./service.js";

let service: Service;
let c: CardmintClient;
before(async () => {
  service = await startService();
  c = service.client({ pollInterval: { first: 20, longest: 200 } });
});
after(() => service.stop());

const order = { usd_amount: "150.50", currency: "monero" };

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const one of list) found.push(one);
  return found;
}

test("a card is created, paid, waited for, and listed", async () => {
  const ordered = await c.createCard(order);
  assert.equal(ordered.status, "awaiting_payment");
  assert.equal(ordered.usd_amount, "150.50");
  assert.match(ordered.payment.amount, /^1\.0*\d+$/);
  assert.deepEqual((await c.getCard(ordered.uuid)).usd_amount, ordered.usd_amount);

  const waiting = c.waitForCard(ordered.uuid, { timeout: 60_000 });
  await c.simulatePayment(ordered.uuid);
  const card = await waiting;
  assert.equal(card.status, "generated");
  assert.match(card.credentials.card_number, /^\d{16}$/);
  assert.equal((await c.revealCard(card.uuid)).credentials.security_code, card.credentials.security_code);

  const unpaid = await Promise.all([c.createCard({ ...order, usd_amount: 60 }), c.createCard(order)]);
  const cards = await all(c.listCards({ pageSize: 1 }));
  assert.deepEqual(new Set(cards.map((one) => one.uuid)), new Set([card, ...unpaid].map((one) => one.uuid)));
  const done = await all(c.listCards({ status: "generated" }));
  assert.deepEqual(done.map((one) => one.uuid), [card.uuid]);
  assert.ok(cards.every((one) => typeof one.usd_amount === "string"));

  const events = await all(c.listEvents());
  assert.deepEqual(events.map((e) => e.seq), events.map((_, i) => i + 1));
  const last = events.at(-1);
  assert.equal(last?.type, "card.generated");
  assert.deepEqual(await all(c.listEvents({ after: last?.seq ?? 0 })), []);
});

test("the same key returns the same card", async () => {
  const [a, b] = [await c.createCard(order, { idempotencyKey: "order-1" }), await c.createCard(order, { idempotencyKey: "order-1" })];
  assert.deepEqual(a, b);
  await assert.rejects(c.createCard({ ...order, usd_amount: "60" }, { idempotencyKey: "order-1" }), { code: "idempotency_key_reused" });
});

test("amounts may be numbers or strings", async () => {
  for (const [amount, wire] of [[50, "50"], [50.1, "50.10"], ["50.10", "50.10"], [749.99, "749.99"], ["750.00", "750"]] as const) {
    assert.equal((await c.createCard({ ...order, usd_amount: amount })).usd_amount, wire);
  }
});

test("an error describes what is wrong", async () => {
  await assert.rejects(c.createCard({ usd_amount: "5", currency: "gold" }), (err) => {
    assert.ok(err instanceof CardmintError);
    assert.equal(err.code, "invalid_request");
    assert.equal(err.status, 422);
    assert.deepEqual(err.errors.map((e) => e.pointer).sort(), ["/currency", "/usd_amount"]);
    assert.match(err.requestId ?? "", /./);
    assert.match(err.message, /^422 .* \(invalid_request\): .*\/usd_amount .* \[request /);
    assert.equal(err.errorsOmitted, 0);
    return true;
  });
  const invented = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`x${i}`, 1]));
  await assert.rejects(c.createCard({ ...order, ...invented }), (err) => {
    assert.ok(err instanceof CardmintError);
    assert.equal(err.errors.length, 100);
    assert.equal(err.errorsOmitted, 200);
    assert.match(err.message, /; and 200 more \[request /);
    return true;
  });
  await assert.rejects(c.getCard("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88"), { status: 404, code: "not_found" });
  await assert.rejects(service.client({ token: "cm_test_wrong" }).listOffers(), { status: 401, code: "unauthorized" });
});

test("currencies and offers are listed", async () => {
  assert.ok((await c.listCurrencies()).some((one) => one.code === "monero"));
  assert.ok((await c.listOffers()).length > 0);
});

test("a card that holds no money can be canceled", async () => {
  const { uuid } = await c.createCard(order);
  assert.equal((await c.cancelCard(uuid)).payment.state, "canceled");
  assert.equal((await c.cancelCard(uuid)).payment.state, "canceled");
  await assert.rejects(c.waitForCard(uuid), CardmintPaymentError);
});

test("each operation has a method with its name", async () => {
  const contract = await (await fetch(`${service.url}/openapi.json`)).json() as { paths: Record<string, Record<string, { operationId?: string }>> };
  const names = Object.values(contract.paths).flatMap((item) => Object.values(item)).flatMap(({ operationId }) => operationId ?? []);
  assert.ok(names.length > 15);
  for (const name of names) assert.equal(typeof c[name as keyof CardmintClient], "function", name);
});

// The samples in the contract use ids that do not exist. They are replaced by new ones.
test("each operation has a sample that works", async (t) => {
  const run = promisify(execFile);
  const contract = await (await fetch(`${service.url}/openapi.json`)).json() as { paths: Record<string, Record<string, { operationId: string }>> };
  const names = Object.values(contract.paths).flatMap((item) => Object.values(item)).map(({ operationId }) => operationId);
  const hook = createServer((_, res) => void res.writeHead(204).end());
  hook.listen(0, "127.0.0.1");
  await once(hook, "listening");
  t.after(() => hook.close());
  const url = `http://127.0.0.1:${(hook.address() as AddressInfo).port}`;
  // The sample of listEvents starts after event 41, which must exist.
  for (let seq = 0; seq < 41; ) {
    const { uuid } = await c.createCard(order);
    await c.simulatePayment(uuid);
    for (const event of await all(c.listEvents({ after: seq }))) seq = event.seq;
  }
  const fill = async (text: string): Promise<string> => {
    if (text.includes("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88")) {
      text = text.replaceAll("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88", (await c.createCard(order)).uuid);
    }
    if (text.includes("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17")) {
      const { webhook } = await c.createWebhook({ url });
      text = text.replaceAll("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17", webhook.id);
    }
    if (text.includes("019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11")) {
      const { uuid } = await c.createCard(order);
      await c.simulatePayment(uuid);
      const event = (await all(c.listEvents())).at(-1);
      text = text.replaceAll("019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11", event?.id ?? "");
    }
    return text;
  };
  const env = { PATH: process.env["PATH"], CARDMINT_URL: service.url, CARDMINT_TOKEN: service.token };
  for (const name of names) {
    const file = join(root, "build/samples", `${name}.run.js`);
    await writeFile(file, await fill(await readFile(join(root, "build/samples", `${name}.js`), "utf8")));
    const { stderr } = await run(process.execPath, [file], { env }); // throws if the program fails
    assert.equal(stderr, "", name);
  }
  for (const { id } of await c.listWebhooks()) await c.deleteWebhook(id);
});

test("operations can be called through api", async () => {
  const { data } = await c.api.GET("/api/cards", { params: { query: { limit: 1 } } });
  assert.equal(data?.length, 1);
});

test("webhooks are created, delivered, verified and deleted", async (t) => {
  const events: Event[] = [];
  let secret = "";
  const receiver = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      try {
        events.push(verifyWebhook(Buffer.concat(chunks), req.headers, secret));
        res.writeHead(204).end(() => receiver.emit("event"));
      } catch (err) {
        res.writeHead(400).end(String(err));
      }
    });
  });
  receiver.listen(0, "127.0.0.1");
  await once(receiver, "listening");
  t.after(() => receiver.close());

  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
  const registered = await c.createWebhook({ url, types: ["card.generated"] });
  const { id } = registered.webhook;
  secret = registered.secret;
  assert.equal((await c.testWebhook(id)).status, 204);
  assert.equal(events[0]?.seq, 0);

  const { uuid } = await c.createCard(order);
  const arrived = once(receiver, "event");
  await c.simulatePayment(uuid);
  await arrived;
  const delivered = events[1];
  assert.ok(delivered?.type === "card.generated");
  assert.equal(delivered.card_uuid, uuid);
  const stored = (await all(c.listEvents())).find((e) => e.id === delivered.id);
  assert.deepEqual(delivered, stored);

  assert.equal((await all(c.listDeliveries(id))).length, 1);
  const again = once(receiver, "event");
  await c.redeliver(id, delivered.id);
  await again;
  assert.equal(events[2]?.id, delivered.id);

  const old = secret;
  secret = (await c.rotateWebhookSecret(id)).secret;
  assert.notEqual(secret, old);
  assert.equal((await c.testWebhook(id)).status, 204);
  assert.ok((await c.recoverWebhook(id, new Date(0))).count >= 1); // the cards issued earlier
  assert.equal((await c.updateWebhook(id, { enabled: false })).enabled, false);
  await assert.rejects(c.redeliver(id, delivered.id), { code: "webhook_disabled" });
  assert.equal((await c.getWebhook(id)).disabled_reason, "request");
  assert.deepEqual((await c.listWebhooks()).map((one) => one.id), [id]);
  await c.deleteWebhook(id);
  await assert.rejects(c.deleteWebhook(id), { code: "not_found" });
});

/** Returns the TypeScript programs in a page of the repository. */
async function programsIn(page: string): Promise<string[]> {
  const text = await readFile(join(root, "../..", page), "utf8");
  return [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((found) => found[1] ?? "");
}

const readmes = ["README.md", "client/typescript/README.md"];
const guides = ["docs/guides/quickstart.md", "docs/guides/webhooks.md"];

test("both READMEs show the example first", async () => {
  const example = await readFile(join(root, "example/quickstart.ts"), "utf8");
  for (const readme of readmes) assert.equal((await programsIn(readme))[0], example, readme);
});

// Parts of programs use a client, the uuid of a card, and a position in the feed.
const beforePart = 'declare const cardmint: import("@cardmint/client").CardmintClient;\ndeclare let last: number;\ndeclare const uuid: string;\n';

test("the example runs with the packed package, and all documented programs compile", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "cardmint-example-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const run = async (cwd: string, command: string, ...args: string[]): Promise<string> => {
    const env = { ...process.env, CARDMINT_URL: service.url, CARDMINT_TOKEN: service.token };
    try {
      return (await promisify(execFile)(command, args, { cwd, env })).stdout;
    } catch (err) {
      throw new Error(`${command} ${args.join(" ")}: ${(err as { stdout?: string }).stdout}`, { cause: err }); // tsc writes errors to stdout
    }
  };
  await run(root, "npm", "pack", "--ignore-scripts", "--pack-destination", dir);
  for (const file of ["package.json", "tsconfig.json", "quickstart.ts"]) await cp(join(root, "example", file), join(dir, file));
  const { version } = JSON.parse(await readFile(join(root, "package.json"), "utf8")) as { version: string };
  await run(dir, "npm", "install", "--no-audit", "--no-fund", `./cardmint-client-${version}.tgz`);
  await run(dir, "npm", "run", "build");
  const all = (await Promise.all([...readmes, ...guides].map(programsIn))).flat();
  assert.ok(all.length >= 8, `only ${all.length} programs are documented`);
  for (const [n, text] of all.entries()) {
    await writeFile(join(dir, `shown${n}.ts`), text.includes("const cardmint =") ? text : `${beforePart}${text}export {};\n`);
  }
  const config = { extends: "./tsconfig.json", compilerOptions: { noEmit: true }, include: ["shown*.ts"] };
  await writeFile(join(dir, "tsconfig.shown.json"), JSON.stringify(config));
  await run(dir, "npx", "tsc", "--project", "tsconfig.shown.json");
  assert.match(await run(dir, "npm", "--silent", "start"), /^pay \d+(\.\d+)? monero to \S+\ncard ending in \d{4}, valid until \d\d\/\d\d\n$/);
});
