import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

const webhook = await cardmint.getWebhook("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17");
console.log(webhook.url, webhook.types, webhook.enabled);
