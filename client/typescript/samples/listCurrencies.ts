import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

for (const currency of await cardmint.listCurrencies()) {
  console.log(currency.code, currency.rate);
}
