import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

// Order a card. Its price in coins is locked until payment.expires_at.
const ordered = await cardmint.createCard({ usd_amount: "150", currency: "monero" });
const { amount, currency, address } = ordered.payment;
console.log(`pay ${amount} ${currency} to ${address}`);

// In a sandbox, the program pays. Elsewhere, a wallet does.
await cardmint.simulatePayment(ordered.uuid);

// Wait until the payment is confirmed and the card is issued.
const card = await cardmint.waitForCard(ordered.uuid, { timeout: 60 * 60_000 });
console.log(`card ending in ${card.credentials.card_number.slice(-4)}, valid until ${card.credentials.expiration_date}`);
