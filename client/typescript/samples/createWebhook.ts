import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

const { webhook, secret } = await cardmint.createWebhook({
  url: "https://shop.example.com/hooks/cardmint",
  types: ["card.generated"],
});
console.log(webhook.id, secret.length); // the secret is shown only once: store it
