import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

const { count } = await cardmint.recoverWebhook("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17", new Date("2026-11-19T00:00:00Z"));
console.log(`${count} events will be sent`);
