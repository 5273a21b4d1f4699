import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

const { webhook, secret } = await cardmint.rotateWebhookSecret("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17");
console.log(webhook.id, secret.length); // the secret is shown only once: give it to the receiver
