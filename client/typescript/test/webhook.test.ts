import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { inspect } from "node:util";
import { CardmintWebhookError, verifyWebhook } from "@cardmint/client";

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const id = "019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11";
const payload = JSON.stringify({
  type: "card.generated",
  timestamp: "2026-11-20T15:06:00.120Z",
  seq: 42,
  card_uuid: "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88",
  status: "generated",
  payment_state: "paid",
});

function signed(body: string | Uint8Array = payload, at = Date.now(), key = secret): Record<string, string> {
  const timestamp = String(Math.floor(at / 1000));
  const mac = createHmac("sha256", Buffer.from(key.slice("whsec_".length), "base64"));
  const signature = mac.update(`${id}.${timestamp}.`).update(body).digest("base64");
  return { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": `v1,${signature}` };
}

test("the event of a signed request is returned", () => {
  const e = verifyWebhook(payload, signed(), secret);
  assert.equal(e.id, id);
  assert.equal(e.seq, 42);
  // This compiles only because the type determines the fields.
  assert.equal(e.type === "card.generated" ? e.card_uuid : undefined, "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88");
});

test("body, headers and secrets are accepted in several forms", () => {
  const headers = signed();
  verifyWebhook(Buffer.from(payload), new Headers(headers), [other, secret]);
  verifyWebhook(new TextEncoder().encode(payload), { "Webhook-Id": id, "WEBHOOK-TIMESTAMP": headers["webhook-timestamp"], "webhook-signature": [`v1,AAAA`, headers["webhook-signature"] ?? ""] }, secret);
});

test("invalid requests are rejected", () => {
  const minute = 60_000;
  const cases: Array<[string, string | Uint8Array, Record<string, string>, RegExp]> = [
    ["another body", payload.replace("42", "43"), signed(), /no signature matches/],
    ["another secret", payload, signed(payload, Date.now(), other), /no signature matches/],
    ["no headers", payload, {}, /a header of .* is missing/],
    ["too old", payload, signed(payload, Date.now() - 6 * minute), /more than five minutes ago/],
    ["too new", payload, signed(payload, Date.now() + 6 * minute), /more than five minutes ahead/],
    ["no time", payload, { ...signed(), "webhook-timestamp": "yesterday" }, /can't be read/],
    ["not JSON", "{4111111111111111", signed("{4111111111111111"), /can't be read/],
    ["no event", "[]", signed("[]"), /needs a type/],
    ["null", "null", signed("null"), /needs a type/],
    ["too long", `{"a":"${"x".repeat(65536)}"}`, signed(), /longer than/],
  ];
  for (const [name, body, headers, message] of cases) {
    assert.throws(
      () => verifyWebhook(body, headers, secret),
      (err) => {
        assert.ok(err instanceof CardmintWebhookError, name);
        assert.match(err.message, message, name);
        assert.ok(!inspect(err).includes("4111"), name);
        return true;
      },
      name,
    );
  }
});

test("short and malformed secrets are rejected", () => {
  for (const bad of ["", "whsec_", "whsec_c2hvcnQ=", "not base64 at all, and long enough", []]) {
    assert.throws(() => verifyWebhook(payload, signed(), bad), TypeError);
  }
});
