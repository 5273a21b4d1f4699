import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

const card = await cardmint.createCard({ usd_amount: "150.50", currency: "monero" }, { idempotencyKey: "order-4711" });
const { amount, currency, address } = card.payment;
console.log(`send ${amount} ${currency} to ${address}`);
