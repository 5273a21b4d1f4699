import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

for (const webhook of await cardmint.listWebhooks()) {
  console.log(webhook.url, webhook.types, webhook.enabled);
}
