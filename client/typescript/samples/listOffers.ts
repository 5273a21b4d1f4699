import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

for (const offer of await cardmint.listOffers()) {
  console.log(`from ${offer.min_usd} to ${offer.max_usd} US dollars`);
}
