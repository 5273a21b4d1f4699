import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

await cardmint.deleteWebhook("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17");
