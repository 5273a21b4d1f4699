curl -sS -X POST "$CARDMINT_URL/api/webhooks/019aa1cb-0c11-7d2e-9a55-6c1f0f8e2b17/recover?since=2026-11-19T00:00:00Z" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
