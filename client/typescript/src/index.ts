export { CardmintClient } from "./client.js";
export type { CallOptions, ClientOptions, CreateCardOptions, KeyedOptions, ListCardsOptions, ListDeliveriesOptions, ListEventsOptions } from "./client.js";
export { CardmintConnectionError, CardmintError, CardmintPaymentError, CardmintTimeoutError } from "./errors.js";
export type { components, operations, paths } from "./schema.gen.js";
export type { RetryOptions } from "./transport.js";
export type * from "./types.js";
export type { WaitOptions } from "./wait.js";
export { CardmintWebhookError, verifyWebhook } from "./webhook.js";
export type { WebhookHeaders } from "./webhook.js";
