curl -sS "$CARDMINT_URL/api/webhooks" \
  -H "Authorization: Bearer $CARDMINT_TOKEN" \
  -H "Content-Type: application/json" \
  -H "Idempotency-Key: hook-1" \
  -d '{"url": "https://shop.example.com/hooks/cardmint", "types": ["card.generated"]}'
