curl -sS "$CARDMINT_URL/api/cards" \
  -H "Authorization: Bearer $CARDMINT_TOKEN" \
  -H "Content-Type: application/json" \
  -H "Idempotency-Key: order-4711" \
  -d '{"usd_amount": "150.50", "currency": "monero"}'
