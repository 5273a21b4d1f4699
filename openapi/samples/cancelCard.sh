curl -sS -X POST "$CARDMINT_URL/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88/cancel" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
