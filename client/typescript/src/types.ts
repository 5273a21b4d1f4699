import type { components, operations } from "./schema.gen.js";

type Schemas = components["schemas"];

export type Card = Schemas["Card"];
export type CardStatus = Schemas["CardStatus"];
export type CreateCardRequest = Schemas["CreateCardRequest"];
export type Credentials = Schemas["Credentials"];
/** The credentials of an issued card: none of them is null. */
export type IssuedCredentials = { [Field in keyof Credentials]: string };
/** An issued card, as waitForCard returns it. */
export type IssuedCard = Card & { status: "generated"; credentials: IssuedCredentials };
export type CreateWebhookRequest = Schemas["CreateWebhookRequest"];
export type Currency = Schemas["Currency"];
export type Delivery = Schemas["Delivery"];
export type DeliveryAttempt = Schemas["DeliveryAttempt"];
export type DeliveryState = Schemas["DeliveryState"];
export type EventType = Schemas["EventType"];
export type FieldError = Schemas["FieldError"];
export type Offer = Schemas["Offer"];
export type Payment = Schemas["Payment"];
export type PaymentState = Schemas["PaymentState"];
export type ProblemCode = Schemas["ProblemCode"];
export type Recovery = Schemas["Recovery"];
export type Refund = Schemas["Refund"];
export type SimulatePaymentRequest = Schemas["SimulatePaymentRequest"];
export type TestWebhookRequest = Schemas["TestWebhookRequest"];
export type Transfer = Schemas["Transfer"];
export type UpdateWebhookRequest = Schemas["UpdateWebhookRequest"];
export type Webhook = Schemas["Webhook"];
export type WebhookWithSecret = Schemas["WebhookWithSecret"];

type Of<Type extends EventType, Fields> = { id: string; seq: number; timestamp: string; type: Type } & Fields;

/** An event of a card. `status` and `payment_state` are the card's at that time. */
export type CardEvent = Of<
  Exclude<EventType, "webhook.disabled" | "feed.reset">,
  { card_uuid: string; status: CardStatus; payment_state: PaymentState }
>;
/** The service has disabled one of the account's webhooks. */
export type WebhookDisabledEvent = Of<"webhook.disabled", { webhook_id: string }>;
/** Cards and events since `since` may have been lost: read them again. */
export type FeedResetEvent = Of<"feed.reset", { since: string }>;

/**
 * An event, as webhooks and the feed deliver it. Use `type` to tell events apart, and ignore types
 * that you do not know: the service may add more, which these types can't name yet. `seq` gives the
 * order; it is 0 in examples.
 */
export type Event = CardEvent | WebhookDisabledEvent | FeedResetEvent;

/** Which cards to list; all of them by default. */
export type CardFilter = Omit<NonNullable<operations["listCards"]["parameters"]["query"]>, "limit" | "cursor">;
