import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

for await (const card of cardmint.listCards({ status: "generated" })) {
  console.log(card.uuid, card.usd_amount);
}
