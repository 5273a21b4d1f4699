import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

const card = await cardmint.getCard("019aa1c9-f868-7cef-8e4e-9b1c97fb1d88");
console.log(card.status, card.payment.state);
