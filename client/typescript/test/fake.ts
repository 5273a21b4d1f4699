import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { type Card, CardmintClient, type ClientOptions } from "@cardmint/client";

export const token = "cm_test_secret";
export const uuid = "019aa1c9-f868-7cef-8e4e-9b1c97fb1d88";

/** A request that the fake service received. */
export interface Received {
  method: string;
  url: URL;
  headers: IncomingMessage["headers"];
  body: string;
}

export type Answer = (res: ServerResponse, req: Received) => void;

/** Starts a server that responds with `answer`, and records its requests. */
export async function fake(t: TestContext, answer: Answer): Promise<{ url: string; received: Received[] }> {
  const received: Received[] = [];
  const server = createServer((req, res) => {
    let body = "";
    req.setEncoding("utf8").on("data", (text: string) => (body += text));
    req.on("end", () => {
      const { method = "", headers } = req;
      const request = { method, url: new URL(req.url ?? "", "http://fake"), headers, body };
      received.push(request);
      answer(res, request);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received };
}

/** Sends the answers in order, and repeats the last one. */
export function script(...answers: Answer[]): Answer {
  let n = 0;
  return (res, req) => answers[Math.min(n++, answers.length - 1)]?.(res, req);
}

export function client(url: string, options: Partial<ClientOptions> = {}): CardmintClient {
  return new CardmintClient({ baseUrl: url, token, ...options });
}

export const json =
  (value: unknown, headers: Record<string, string> = {}): Answer =>
  (res) =>
    res.writeHead(200, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(value));

export const problem =
  (status: number, code: string, headers: Record<string, string> = {}): Answer =>
  (res) =>
    res
      .writeHead(status, { "Content-Type": "application/problem+json", "X-Request-Id": "req-1", ...headers })
      .end(JSON.stringify({ type: "about:blank", title: "No", status, code, detail: "Not so.", request_id: "req-1" }));

/** Resets the connection instead of responding. */
export const reset: Answer = (res) => res.socket?.resetAndDestroy();

export function card(change: Partial<Card> = {}, state: Card["payment"]["state"] = "unpaid"): Card {
  return {
    uuid,
    created_at: "2026-11-20T14:46:00.120Z",
    status: "awaiting_payment",
    usd_amount: "150.50",
    payment: {
      currency: "monero",
      amount: "0.983456789012",
      address: "8BnERTpvL5MbCLtj5n9No7J5oE5hHiB3",
      state,
      expires_at: "2026-11-20T15:46:00.120Z",
      uri: "monero:8BnERTpvL5MbCLtj5n9No7J5oE5hHiB3?tx_amount=0.983456789012",
      amount_received: "0",
      amount_due: "0.983456789012",
      confirmations: 0,
      confirmations_required: 10,
      rate: "152.52",
    },
    credentials:
      change.status === "generated"
        ? { card_number: "9912345678901232", expiration_date: "11/29", security_code: "987", url: "https://sandbox.invalid/1", url_password: "q7GmZ4tKx2Rw" }
        : { card_number: null, expiration_date: null, security_code: null, url: null, url_password: null },
    refund_address: null,
    refund: null,
    ...change,
  };
}

export const generated = card({ status: "generated" }, "paid");
