curl -sS "$CARDMINT_URL/api/webhooks/019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
