curl -sS "$CARDMINT_URL/api/sandbox/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88/payments" \
  -H "Authorization: Bearer $CARDMINT_TOKEN" \
  -H "Content-Type: application/json" \
  -H "Idempotency-Key: payment-1" \
  -d '{}'
