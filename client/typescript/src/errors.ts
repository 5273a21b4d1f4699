import type { Card, FieldError, ProblemCode } from "./types.js";

/**
 * The service rejected a request: its response has a status other than 2xx. Use `code` to tell
 * errors apart.
 */
export class CardmintError extends Error {
  override readonly name = "CardmintError";
  /**
   * The problem's code; undefined if the response came from something else, such as a proxy. The
   * service may send codes that are not listed.
   */
  readonly code: ProblemCode | (string & {}) | undefined;
  /** The HTTP status of the response. */
  readonly status: number;
  /** The kind of problem, in a few words. */
  readonly title: string;
  /** What is wrong and how to fix it, for people. */
  readonly detail: string;
  /** Identifies the request in the service's log; quote it when you ask for help. */
  readonly requestId: string | undefined;
  /** With `invalid_request`, the problems of the request, up to 100. */
  readonly errors: readonly FieldError[];
  /** The number of problems beyond those in `errors`. */
  readonly errorsOmitted: number;
  /** How long the service asks to wait, in milliseconds, at most one day; 0 if it does not ask. */
  readonly retryAfter: number;

  /** @internal */
  constructor(fields: Pick<CardmintError, "code" | "status" | "title" | "detail" | "requestId" | "errors" | "errorsOmitted" | "retryAfter">) {
    super(describe(fields));
    this.code = fields.code;
    this.status = fields.status;
    this.title = fields.title;
    this.detail = fields.detail;
    this.requestId = fields.requestId;
    this.errors = fields.errors;
    this.errorsOmitted = fields.errorsOmitted;
    this.retryAfter = fields.retryAfter;
  }
}

/** There was no response, or none that can be the service's. `cause` is the reason, if known. */
export class CardmintConnectionError extends Error {
  override readonly name = "CardmintConnectionError";
}

/**
 * Waiting longer for a card is pointless: its payment is expired, late, canceled or refunded, or
 * its credentials were deleted. A late payment need not be final: the operator may still accept it,
 * and the card is then generated.
 */
export class CardmintPaymentError extends Error {
  override readonly name = "CardmintPaymentError";
  /** The card that ended the wait. */
  readonly card: Card;

  /** @internal */
  constructor(card: Card, advice: string) {
    super(`the payment of card ${card.uuid} is ${card.payment.state}: ${advice}`);
    this.card = card;
  }
}

/** A card was not generated within the timeout. */
export class CardmintTimeoutError extends Error {
  override readonly name = "CardmintTimeoutError";
  /** The card as last read; undefined if it was never read. */
  readonly card: Card | undefined;

  /** @internal */
  constructor(uuid: string, card: Card | undefined, cause: unknown) {
    const p = card?.payment;
    const due = p?.refund_due;
    const progress = due
      ? `; no supplier makes the card, and ${due} ${p?.currency} are to be given back`
      : p
        ? `; the payment is ${p.state}: ${p.amount_due} ${p.currency} are due, ${p.confirmations} of ${p.confirmations_required} confirmations`
        : "";
    super(`card ${uuid} was not generated in time${progress}`, cause === undefined ? undefined : { cause });
    this.card = card;
  }
}

function describe(e: Pick<CardmintError, "code" | "status" | "title" | "detail" | "requestId" | "errors" | "errorsOmitted">): string {
  let text = `${e.status} ${e.title}`;
  if (e.code) text += ` (${e.code})`;
  if (e.detail) text += `: ${e.detail}`;
  if (e.errors.length > 0) text += ` ${e.errors.map((f) => `${f.pointer} ${f.detail}`).join("; ")}`;
  if (e.errorsOmitted > 0) text += `; and ${e.errorsOmitted} more`;
  if (e.requestId) text += ` [request ${e.requestId}]`;
  return text.replace(/\s+/g, " ");
}

/** Returns the error for a response whose status is not 2xx. */
export function responseError(res: Response, body: string): CardmintError {
  const fields = {
    code: undefined as string | undefined,
    status: res.status,
    title: res.statusText || "Refused",
    detail: "",
    requestId: res.headers.get("X-Request-Id") ?? undefined,
    errors: [] as FieldError[],
    errorsOmitted: 0,
    retryAfter: retryAfter(res.headers.get("Retry-After")),
  };
  const kind = mediaType(res);
  if (kind === "application/problem+json" || kind === "application/json") {
    const problem = parse(body);
    if (problem === undefined) {
      fields.detail = "the response can't be read";
    } else {
      fields.code = text(problem["code"]);
      fields.title = text(problem["title"]) ?? fields.title;
      fields.detail = text(problem["detail"]) ?? "";
      fields.requestId = text(problem["request_id"]) ?? fields.requestId;
      fields.errors = Array.isArray(problem["errors"]) ? problem["errors"].filter(isFieldError) : [];
      if (typeof problem["errors_omitted"] === "number") fields.errorsOmitted = problem["errors_omitted"];
    }
  } else if (res.status < 400) {
    fields.detail = "redirects are not followed, correct the base URL";
  } else {
    // The body is left out: it may be an HTML page, or repeat the request.
    fields.detail = `the response is ${kind}, not a problem document; it may be a proxy's`;
  }
  return new CardmintError(fields);
}

/** Returns the media type of a response, without parameters. */
export function mediaType(res: Response): string {
  return res.headers.get("Content-Type")?.split(";")[0]?.trim().toLowerCase() || "of no known type";
}

const maxRetryAfter = 24 * 60 * 60_000;

/**
 * Parses a Retry-After header, in seconds or as a date. Returns 0 if it is invalid or in the past.
 */
function retryAfter(header: string | null): number {
  if (header === null) return 0;
  const wait = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(wait) ? 0 : Math.min(Math.max(wait, 0), maxRetryAfter);
}

function parse(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function isFieldError(value: unknown): value is FieldError {
  const f = value as Partial<Record<keyof FieldError, unknown>> | null;
  return typeof f === "object" && f !== null && typeof f.pointer === "string" && typeof f.detail === "string";
}
