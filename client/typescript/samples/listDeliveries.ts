import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

for await (const delivery of cardmint.listDeliveries("019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17", { state: "failed" })) {
  console.log(delivery.event.seq, delivery.event.type, delivery.attempts.length);
}
