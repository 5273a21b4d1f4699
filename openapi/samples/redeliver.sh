curl -sS -X POST "$CARDMINT_URL/api/webhooks/019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17/deliveries/019aa1ca-7a3e-7b04-8a0b-2f8f6d3f5c11/redeliver" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
