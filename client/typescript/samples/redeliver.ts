import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

await cardmint.redeliver("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17", "019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11");
